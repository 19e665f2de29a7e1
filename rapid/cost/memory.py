"""Bytes of a GPU or of a process while a job runs.

Training holds the weights, their gradients and Adam's state (ZeRO-2 shares out gradients and
state), the reference's weights where there is a KL term, the activations of one micro-batch, and
with vLLM the engine's weights. Sampling holds weights, keys and values. The larger of the two
phases counts, as nothing of one is needed in the other but the weights and the state.

`python -m performance.steps held` measures steps of training beside this.
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
HEAD_CHUNK = 2**28  # bytes of a chunk of logits, and of what is computed from it
BUCKET = 5e8  # gradients that DeepSpeed gathers before it exchanges them, its default
USABLE = 0.92  # share of a GPU's memory: fragments and other users take the rest


@dataclass(frozen=True)
class ProcessMemory:
    """Bytes of one process of a job, without its libraries."""

    state: float  # what stays: weights, gradients, Adam's state
    head: float = 0.0  # a chunk of logits in training, and the gradient of the head's weights
    completion: float = 0.0  # activations of one completion of a micro-batch, at full length
    completions: int = 0  # of the largest micro-batch
    sampling: float = 0.0  # keys and values of what is sampled at a time, and logits

    @property
    def total(self) -> float:
        """Bytes held at most."""
        training = self.head + self.completions * self.completion
        return self.state + max(training, self.sampling)

    def most_completions(self, room: float) -> int:
        """Return how many completions of full length fit in a micro-batch."""
        room -= self.state
        return max(0, int((room - self.head) / self.completion)) if room >= self.sampling else 0


def job_memory(spec: BaseModel, shape: Shape, expected: Expected) -> ProcessMemory:
    """Return the memory of one process of a job that computes with a model."""
    size = BYTES[precision(spec)]
    if isinstance(spec, PretrainSpec):
        return ProcessMemory(shape.parameters * (2 * size + ADAM_STATE), HEAD_CHUNK)
    if isinstance(spec, TrainSpec):
        return _train_job_memory(spec, shape, expected)
    batch = IN_FLIGHT if spec.compute.sampler == "vllm" else AT_A_TIME
    sampling, split = _sampling_bytes(spec, shape, expected, batch), processes(spec)
    return ProcessMemory(shape.parameters * size / split, sampling=sampling / split)


def training_memory(
    shape: Shape,
    *,
    precision: str,
    tokens: float,
    completions: int,
    on_gpu: bool,
    checkpointing: bool = False,
    reference: bool = False,
    engine: bool = False,
    processes: int = 1,
    sampling: float = 0.0,
) -> ProcessMemory:
    """Return the memory of a process that trains a model.

    In bfloat16 one process keeps float32 weights and casts them for each pass; several, by
    DeepSpeed, have bfloat16 weights and share out the float32 ones.

    Args:
        tokens: of a completion with its prompt.
        completions: of the largest micro-batch.
        reference: whether it holds the weights of a reference too.
        engine: whether it holds those of vLLM's engine too.
        processes: that share out gradients and Adam's state.
    """
    size = BYTES[precision]
    shared = size + ADAM_STATE + (MASTER if size < MASTER else 0)
    held = size
    copied = 0.0 if processes == 1 else size * min(BUCKET, shape.parameters)
    if processes == 1 and size < MASTER:
        held, shared = MASTER, MASTER + ADAM_STATE
        copied = size * shape.multiplied
    weights = held * (1 + reference) + size * engine + shared / processes
    layers = 1 if checkpointing else shape.layers
    # PyTorch's attention keeps the weights of all pairs of tokens where it has no faster kernel.
    pairs = layers * shape.heads * size * tokens**2 if on_gpu and size == MASTER else 0.0
    return ProcessMemory(
        state=shape.parameters * weights,
        head=HEAD_CHUNK + copied + MASTER * shape.vocabulary * shape.hidden,
        completion=tokens * _activations(shape, size, checkpointing) + pairs,
        completions=completions,
        sampling=sampling,
    )


def with_passes(spec: TrainSpec, completions: int) -> TrainSpec:
    """Return a run's spec with micro-batches of at most so many completions."""
    section = "training" if spec.training else "objective"
    passes = spec.passes.model_copy(update={"micro_batch": completions})
    return spec.model_copy(update={section: passes})


def largest_micro_batch(spec: TrainSpec) -> int:
    """Return how many completions, or demonstrations, of a step a process has at most."""
    count = processes(spec)
    if spec.training is None:
        return max(1, spec.objective.batch // count)
    group = spec.training.group_size
    groups = spec.n_step // group
    return ceil(groups / count) * group if groups >= count else ceil(spec.n_step / count)


def _train_job_memory(spec: TrainSpec, shape: Shape, expected: Expected) -> ProcessMemory:
    count, passes = processes(spec), spec.passes
    sampling = 0.0
    if spec.training is not None:
        share = spec.H * spec.n_step / count
        batch = min(share, spec.sampling_batch or share)
        sampling = _sampling_bytes(spec, shape, expected, batch)
    micro_batch = 1 if passes.micro_batch == "auto" else passes.micro_batch
    return training_memory(
        shape,
        precision=precision(spec),
        tokens=expected.prompt + expected.limit,
        completions=min(micro_batch, largest_micro_batch(spec)),
        on_gpu=spec.compute.device == "gpu",
        checkpointing=passes.checkpointing,
        reference=bool(getattr(spec.objective, "beta", 0)),
        engine=spec.training is not None and spec.compute.sampler == "vllm",
        processes=count,
        sampling=sampling,
    )


def _activations(shape: Shape, size: int, checkpointing: bool = False) -> float:
    """Return bytes of one token kept for the backward pass.

    A layer keeps in float32 its input, the normed input, and both again for the feed-forward
    layer; and in the precision of the computation what matrices are multiplied with: 2 widths,
    queries, keys and values and these repeated for each head, the output of attention twice, and
    4 widths of the feed-forward layer. With checkpointing it is the input of each layer, and one
    layer's at a time. The logits are never held at once.
    """
    attention = 5 * shape.query_width + 2 * shape.kv_width
    widths = 2 * shape.hidden + attention + 4 * shape.intermediate
    layer = size * widths + 4 * 4 * shape.hidden
    if checkpointing:
        return layer + shape.layers * 4 * shape.hidden
    return shape.layers * layer


def _sampling_bytes(spec: BaseModel, shape: Shape, expected: Expected, completions: float) -> float:
    """Return bytes of keys and values of completions sampled at a time, and of float32 logits.

    vLLM keeps what there is and no logits; transformers pads all to the longest.
    """
    vllm = spec.compute.sampler == "vllm"
    tokens = expected.prompt + (expected.length if vllm else expected.longest(completions))
    cached = completions * tokens * shape.key_value_bytes(BYTES[precision(spec)])
    return cached if vllm else cached + 3 * 4 * completions * shape.vocabulary
