"""Bytes: of a GPU or a process while a job runs, and of what it leaves on disk.

Training holds the weights, their gradients and Adam's state (ZeRO-2 shares out gradients and state), the
reference's weights where there is a KL term, the activations of one pass, and with vLLM the engine's
weights. Sampling holds weights, keys and values. The larger of the two phases counts, as nothing of one
is needed in the other but the weights and the state.
"""

from dataclasses import dataclass
from math import ceil

from rapid.config.sections import Section
from rapid.config.specs import DistillSpec, EvaluateSpec, TrainSpec
from rapid.cost.expected import Expected
from rapid.cost.roofline import BYTES, key_value_bytes
from rapid.cost.sizes import Shape
from rapid.cost.work import AT_A_TIME, IN_FLIGHT, processes

ADAM_STATE = 8  # bytes a parameter: two moments
MASTER = 4  # bytes a parameter: the float32 weights of training in bfloat16
HEAD_CHUNK = 1024  # tokens whose logits the fused head holds at a time
CUDA_CONTEXT = 1.5e9  # of a process, with its libraries
USABLE = 0.92  # share of a GPU's memory: fragments and other users take the rest


@dataclass(frozen=True)
class TrainingBytes:
    """Of one process: what stays, and what one completion of a pass adds."""

    state: float
    completion: float
    sampling: float

    def total(self, completions: int) -> float:
        """With passes of so many completions of full length."""
        return self.state + max(completions * self.completion, self.sampling)


def training_bytes(spec: TrainSpec, shape: Shape, expected: Expected) -> TrainingBytes:
    """Of a process of a training run, with a policy's completions as long as the limit."""
    imitates = spec.training is None
    precision = spec.objective.precision if imitates else spec.training.precision
    size, count, weights = BYTES[precision], processes(spec), shape.parameters
    length = spec.max_completion_length
    if imitates:  # demonstrations are as long as they are, and known to be correct
        length = expected.lengths(length).longest(spec.objective.micro_batch)
    tokens = expected.prompt + length
    state = weights * size + weights * (size + ADAM_STATE) / count
    if size < MASTER:
        state += weights * MASTER / count
    if getattr(spec.objective, "beta", 0):
        state += weights * size
    sampling = 0.0
    if not imitates:
        sampler = spec.compute.sampler
        if sampler == "vllm":
            state += weights * size
        together = spec.H * spec.n_step / count
        if spec.sampling_batch:
            together = min(together, spec.sampling_batch)
        sampling = sampling_bytes(
            shape, size, together, expected, spec.max_completion_length, sampler
        )
    return TrainingBytes(state, tokens * activation_bytes(shape, size), sampling)


def pass_completions(spec: TrainSpec) -> int:
    """Completions of the largest pass of a process."""
    if spec.training is None:
        return spec.objective.micro_batch
    group, count = spec.training.group_size, processes(spec)
    groups = spec.n_step // group
    most = ceil(groups / count) * group if groups >= count else ceil(spec.n_step / count)
    return min(spec.training.micro_batch, most)


def activation_bytes(shape: Shape, size: int) -> float:
    """Of one token, kept for the backward pass, without gradient checkpointing.

    A layer keeps about 10 widths (its input, norms, the residual, the output of attention), the queries,
    keys and values, and 4 widths of the feed-forward layer; norms are in float32. The logits are never
    held at once: a chunk of `HEAD_CHUNK` tokens is shared by all.
    """
    query = shape.heads * shape.head_dim
    widths = 10 * shape.hidden + 2 * query + 2 * shape.kv_width + 4 * shape.intermediate
    return shape.layers * (size * widths + 4 * 2 * shape.hidden)


def sampling_bytes(
    shape: Shape, size: int, completions: float, expected: Expected, limit: int, sampler: str
) -> float:
    """Keys and values of completions sampled at a time, and transformers' float32 logits.

    vLLM keeps what there is; transformers pads all to the longest.
    """
    length = (
        expected.lengths(limit).mean
        if sampler == "vllm"
        else expected.lengths(limit).longest(completions)
    )
    cached = completions * (expected.prompt + length) * key_value_bytes(shape, size)
    logits = 0 if sampler == "vllm" else 3 * 4 * completions * shape.vocabulary
    return cached + logits


def head_bytes(shape: Shape) -> float:
    """Of the chunk of logits in training, with its gradient."""
    return 2 * 4 * HEAD_CHUNK * shape.vocabulary


def process_bytes(spec: Section, shape: Shape, expected: Expected, base: float) -> float:
    """Of one process of a job, on a GPU or resident.

    Args:
        base: what does not depend on the model: libraries.
    """
    if isinstance(spec, TrainSpec):
        held = training_bytes(spec, shape, expected)
        return base + head_bytes(shape) + held.total(pass_completions(spec))
    if isinstance(spec, EvaluateSpec | DistillSpec):
        precision = spec.evaluation.precision if isinstance(spec, EvaluateSpec) else spec.precision
        size, sampler = BYTES[precision], spec.compute.sampler
        together = IN_FLIGHT if sampler == "vllm" else AT_A_TIME
        split = getattr(spec, "tensor_parallel", 1)
        held = sampling_bytes(shape, size, together, expected, spec.max_completion_length, sampler)
        return base + (shape.parameters * size + held) / split
    weights = shape.parameters  # pre-training, in float32
    return base + head_bytes(shape) + weights * (4 + 4 + ADAM_STATE)


def largest_micro_batch(
    spec: TrainSpec, shape: Shape, expected: Expected, memory: float, base: float
) -> int:
    """Completions of full length that fit in a pass, in whole groups; 0 where not even one does."""
    held = training_bytes(spec, shape, expected)
    room = USABLE * memory - base - head_bytes(shape) - held.state
    if room < held.sampling:
        return 0
    group = spec.training.group_size
    return int(room / held.completion) // group * group


def largest_h(
    spec: TrainSpec, shape: Shape, expected: Expected, memory: float, base: float
) -> float:
    """H whose inference batch's keys and values still fit beside the state."""
    held = training_bytes(spec, shape, expected)
    room = USABLE * memory - base - held.state
    return max(0.0, room) / max(held.sampling / spec.H, 1.0)


def model_disk(shape: Shape, precision: str) -> float:
    """Bytes of a saved model: its weights, and a few MB of tokenizer."""
    return shape.parameters * BYTES[precision] + 50 * shape.vocabulary
