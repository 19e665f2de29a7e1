"""Bytes of a GPU or of a process while a job runs.

Training holds the weights, their gradients and Adam's state (ZeRO-2 shares out gradients and
state), the reference's weights where there is a KL term, the activations of one pass, and with vLLM
the engine's weights. Sampling holds weights, keys and values. The larger of the two phases counts,
as nothing of one is needed in the other but the weights and the state.
"""

from dataclasses import dataclass
from math import ceil

from pydantic import BaseModel

from rapid.config.specs import PretrainSpec, TrainSpec
from rapid.cost.expected import Expected
from rapid.cost.shapes import Shape
from rapid.cost.work import AT_A_TIME, BYTES, IN_FLIGHT, precision, processes

ADAM_STATE = 8  # bytes a parameter: two moments
MASTER = 4  # bytes a parameter: the float32 weights of training in bfloat16
HEAD_CHUNK = 1024  # tokens whose logits, with their gradient, the fused head holds at a time
USABLE = 0.92  # share of a GPU's memory: fragments and other users take the rest


@dataclass(frozen=True)
class Memory:
    """Bytes of one process of a job, without its libraries."""

    state: float  # what stays: weights, gradients, Adam's state
    head: float = 0.0  # a chunk of logits in training
    completion: float = 0.0  # activations of one completion of a pass, at full length
    completions: int = 0  # of the largest pass
    sampling: float = 0.0  # keys and values of what is sampled at a time, and logits

    @property
    def total(self) -> float:
        """Bytes held at most."""
        return self.state + self.head + max(self.completions * self.completion, self.sampling)

    def most_completions(self, room: float) -> int:
        """Return how many completions of full length fit in a pass."""
        room -= self.state + self.head
        return int(room / self.completion) if room >= self.sampling else 0


def job_memory(spec: BaseModel, shape: Shape, expected: Expected) -> Memory:
    """Return the memory of one process of a job that computes with a model."""
    size = BYTES[precision(spec)]
    if isinstance(spec, PretrainSpec):
        return Memory(shape.parameters * (2 * size + ADAM_STATE), _head(shape))
    if isinstance(spec, TrainSpec):
        return _training(spec, shape, expected)
    together = IN_FLIGHT if spec.compute.sampler == "vllm" else AT_A_TIME
    sampling = _sampling(spec, shape, expected, together)
    split = processes(spec)
    return Memory(shape.parameters * size / split, sampling=sampling / split)


def _training(spec: TrainSpec, shape: Shape, expected: Expected) -> Memory:
    size, count = BYTES[precision(spec)], processes(spec)
    shared = size + ADAM_STATE + (MASTER if size < MASTER else 0)
    copies = 2 if getattr(spec.objective, "beta", 0) else 1
    if spec.training is None:  # demonstrations are as long as they are, and known to be correct
        most = max(1, spec.objective.batch // count)
        completions, sampling = min(spec.objective.micro_batch, most), 0.0
        length = expected.longest(completions)
    else:
        group, length = spec.training.group_size, expected.limit
        groups = spec.n_step // group
        most = ceil(groups / count) * group if groups >= count else ceil(spec.n_step / count)
        completions = min(spec.training.micro_batch, most)  # of the largest pass
        together = spec.H * spec.n_step / count
        sampling = _sampling(spec, shape, expected, min(together, spec.sampling_batch or together))
        copies += spec.compute.sampler == "vllm"
    return Memory(
        state=shape.parameters * (copies * size + shared / count),
        head=_head(shape),
        completion=(expected.prompt + length) * _activations(shape, size),
        completions=completions,
        sampling=sampling,
    )


def _activations(shape: Shape, size: int) -> float:
    """Return bytes of one token kept for the backward pass, without gradient checkpointing.

    A layer keeps about 10 widths (its input, norms, the residual, the output of attention), the
    queries, keys and values, and 4 widths of the feed-forward layer; norms are in float32. The
    logits are never held at once.
    """
    attention = 2 * shape.query_width + 2 * shape.kv_width
    widths = 10 * shape.hidden + attention + 4 * shape.intermediate
    return shape.layers * (size * widths + 4 * 2 * shape.hidden)


def _sampling(spec: BaseModel, shape: Shape, expected: Expected, completions: float) -> float:
    """Return bytes of keys and values of completions sampled at a time, and of float32 logits.

    vLLM keeps what there is and no logits; transformers pads all to the longest.
    """
    vllm = spec.compute.sampler == "vllm"
    tokens = expected.prompt + (expected.mean if vllm else expected.longest(completions))
    cached = completions * tokens * shape.key_value_bytes(BYTES[precision(spec)])
    return cached if vllm else cached + 3 * 4 * completions * shape.vocabulary


def _head(shape: Shape) -> float:
    return 2 * 4 * HEAD_CHUNK * shape.vocabulary
