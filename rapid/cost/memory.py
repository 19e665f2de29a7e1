"""Estimates the memory of a job: bytes on a GPU, or of a process on a CPU.

Training needs memory for the weights, their gradients and Adam's state (with several processes,
ZeRO-2 divides gradients and state), the weights of the reference policy if there is a KL term, the
activations of a micro-batch, and with vLLM a copy of the weights in vLLM's engine. Sampling needs
memory for keys and values beside the weights. The peak is all that is always in memory, plus the
larger of what a micro-batch and sampling add. vLLM samples fewer sequences at a time if memory is
short, so that it requires memory for one of them only.

`python -m performance.steps planned_memory` compares estimates with measured training steps.
"""

from dataclasses import dataclass
from math import ceil

from pydantic import BaseModel

from rapid.config.specs import PretrainSpec, TrainSpec, uses_vllm_server
from rapid.cost.expected import Expected
from rapid.cost.shapes import Shape
from rapid.cost.work import (
    BYTES_PER_NUMBER,
    TRANSFORMERS_BATCH,
    VLLM_CONCURRENCY,
    count_processes,
    get_precision,
)

FLOAT32 = BYTES_PER_NUMBER["float32"]
ADAM_STATE = 2 * FLOAT32  # bytes per parameter: two moments
# Bytes of a chunk of logits and of the tensors computed from it. Training computes logits in chunks
# of tokens (`rapid.training.head`), so that they are never all in memory.
HEAD_CHUNK = 2**28
BUCKET = 5e8  # numbers that DeepSpeed collects before it exchanges gradients (its default)
# Main memory of a process on a GPU without weights: libraries, CUDA's context, a grader. Assumed.
PROCESS_MAIN_MEMORY = 8e9
USABLE_SHARE = 0.92  # of the memory; fragmentation and other processes take the rest


@dataclass(frozen=True)
class ProcessMemory:
    """Bytes of one process of a job, without its libraries."""

    state: float  # always in memory: weights, gradients, Adam's state
    # In training: a chunk of logits, the gradient of the head's weights, and buffers.
    head: float = 0.0
    completion: float = 0.0  # in training: activations of one completion of the greatest length
    completions: int = 0  # number of completions in the largest micro-batch
    sampling: float = 0.0  # in sampling: keys and values of all sequences in a batch, and logits
    # The least that sampling needs: with vLLM keys and values of one sequence of the greatest
    # length, otherwise all of `sampling`.
    least_sampling: float = 0.0

    @property
    def total(self) -> float:
        """The peak, in bytes."""
        return self.state + max(self._training, self.sampling)

    @property
    def required(self) -> float:
        """The bytes without which the job cannot run."""
        return self.state + max(self._training, self.least_sampling)

    @property
    def _training(self) -> float:
        return self.head + self.completions * self.completion

    def estimate_peak(self, available_bytes: float) -> float:
        """Return the peak, in bytes, if vLLM uses no more than what is available."""
        return min(self.total, max(self.required, available_bytes))

    def max_completions(self, available_bytes: float) -> int:
        """Return how many completions of the greatest length fit in a micro-batch."""
        rest = available_bytes - self.state
        if rest < self.least_sampling:
            return 0
        return max(0, int((rest - self.head) / self.completion))


def estimate_job_memory(spec: BaseModel, shape: Shape, expected: Expected) -> ProcessMemory:
    """Return the memory of one process of a job that runs a model."""
    size = BYTES_PER_NUMBER[get_precision(spec)]
    if isinstance(spec, PretrainSpec):
        state = shape.parameters * (2 * size + ADAM_STATE)
        return ProcessMemory(state, head=HEAD_CHUNK)  # activations of tiny models are left out
    if isinstance(spec, TrainSpec):
        return _estimate_run_memory(spec, shape, expected)
    batch = VLLM_CONCURRENCY if spec.compute.sampler == "vllm" else TRANSFORMERS_BATCH
    split = count_processes(spec)
    sampling, least = _count_sampling_bytes(spec, shape, expected, batch)
    state = shape.parameters * size / split
    return ProcessMemory(state, sampling=sampling / split, least_sampling=least / split)


def estimate_training_memory(
    shape: Shape,
    *,
    precision: str,
    tokens: float,
    completions: int,
    on_gpu: bool,
    checkpointing: bool,
    reference: bool = False,
    engine: bool = False,
    processes: int = 1,
    sampling: float = 0.0,
    least_sampling: float = 0.0,
) -> ProcessMemory:
    """Return the memory of a process that trains a model.

    In bfloat16, a single process keeps float32 weights and casts them for each pass. Several
    processes use DeepSpeed: each has all weights in bfloat16, and a part of the float32 weights.

    Args:
        tokens: tokens of a completion with its prompt.
        completions: number of completions in the largest micro-batch.
        reference: whether the process also holds the weights of a reference policy.
        engine: whether the process also holds the weights of vLLM's engine.
        processes: number of processes that divide gradients and Adam's state between them.
        sampling, least_sampling: see `ProcessMemory`.
    """
    size = BYTES_PER_NUMBER[precision]
    # Bytes per parameter that each process has: the weights.
    replicated = size
    # Bytes per parameter that are divided among the processes (ZeRO-2): gradients, Adam's state,
    # float32 weights.
    sharded = size + ADAM_STATE + (FLOAT32 if size < FLOAT32 else 0)
    # Bytes of the buckets in which gradients are exchanged.
    buffers = 0.0 if processes == 1 else size * min(BUCKET, shape.parameters)
    if processes == 1 and size < FLOAT32:
        replicated, sharded = FLOAT32, FLOAT32 + ADAM_STATE
        buffers = size * shape.matmul_weights  # the bfloat16 copies of the float32 weights
    state = replicated * (1 + reference) + size * engine + sharded / processes
    layers = 1 if checkpointing else shape.layers
    # In float32 on a GPU, PyTorch's attention has no fused kernel and stores the attention weights
    # of all pairs of tokens.
    pairs = layers * shape.heads * size * tokens**2 if on_gpu and size == FLOAT32 else 0.0
    return ProcessMemory(
        state=shape.parameters * state,
        head=HEAD_CHUNK + buffers + FLOAT32 * shape.vocabulary * shape.hidden,
        completion=tokens * _count_activation_bytes(shape, size, checkpointing) + pairs,
        completions=completions,
        sampling=sampling,
        least_sampling=least_sampling,
    )


def estimate_main_memory(spec: BaseModel, shape: Shape | None) -> float:
    """Return the bytes of main memory of one process of a job on GPUs, without further graders.

    Training loads the weights, and those of the reference policy if there is a KL term, in float32
    before it moves them to the GPU. transformers loads a model in the precision of sampling. vLLM
    reads weights part by part.

    Args:
        shape: None if the size of the model is not known; then its weights are left out.
    """
    if shape is None:
        return PROCESS_MAIN_MEMORY
    if isinstance(spec, TrainSpec):
        models = 1 + bool(getattr(spec.objective, "beta", 0))
        return PROCESS_MAIN_MEMORY + models * shape.parameters * FLOAT32
    models = spec.compute.sampler != "vllm"
    size = BYTES_PER_NUMBER[get_precision(spec)]
    return PROCESS_MAIN_MEMORY + models * shape.parameters * size


def set_micro_batch(spec: TrainSpec, completions: int) -> TrainSpec:
    """Return a run's spec with micro-batches of at most `completions` completions."""
    section = "training" if spec.training else "objective"
    settings = spec.pass_settings.model_copy(update={"micro_batch": completions})
    return spec.model_copy(update={section: settings})


def max_micro_batch(spec: TrainSpec) -> int:
    """Return the size of a micro-batch with all of a process's completions of an optimizer step.

    In SFT these are demonstrations.
    """
    count = count_processes(spec)
    if spec.training is None:
        return max(1, spec.objective.batch // count)
    # Whole groups are divided among the processes. If there are fewer groups than processes, the
    # completions of a group are divided too.
    group = spec.training.group_size
    groups = spec.n_step // group
    return ceil(groups / count) * group if groups >= count else ceil(spec.n_step / count)


def _estimate_run_memory(spec: TrainSpec, shape: Shape, expected: Expected) -> ProcessMemory:
    count, settings = count_processes(spec), spec.pass_settings
    # Whether this process samples too; a vLLM server has a GPU of its own.
    samples_here = spec.training is not None and not uses_vllm_server(spec)
    sampling = least_sampling = 0.0
    if samples_here:
        completions = spec.H * spec.n_step / count  # that a process samples
        batch = min(completions, spec.sampling_batch or completions)
        sampling, least_sampling = _count_sampling_bytes(spec, shape, expected, batch)
    # The size that `auto` stands for is computed from the result (`Estimator.resolve_micro_batch`).
    micro_batch = 1 if settings.micro_batch == "auto" else settings.micro_batch
    return estimate_training_memory(
        shape,
        precision=get_precision(spec),
        tokens=expected.prompt + expected.limit,
        completions=min(micro_batch, max_micro_batch(spec)),
        on_gpu=spec.compute.device == "gpu",
        checkpointing=settings.checkpointing,
        reference=bool(getattr(spec.objective, "beta", 0)),
        engine=samples_here and spec.compute.sampler == "vllm",
        processes=count,
        sampling=sampling,
        least_sampling=least_sampling,
    )


def _count_activation_bytes(shape: Shape, size: int, checkpointing: bool) -> float:
    """Return the bytes per token of activations that are kept for the backward pass.

    A layer keeps, in float32, its input and normed input, and the same two tensors of its
    feed-forward part. In the precision of the computation it keeps the operands of its matrix
    products: 2 hidden widths; queries, keys and values, and keys and values repeated for each head;
    the output of attention twice; and 4 feed-forward widths. With checkpointing, each layer keeps
    only its input, and one layer at a time also has the other tensors. Logits are not included.
    """
    attention = 5 * shape.query_width + 2 * shape.kv_width
    widths = 2 * shape.hidden + attention + 4 * shape.intermediate
    layer = size * widths + 4 * 4 * shape.hidden  # four float32 tensors of the hidden width
    if checkpointing:
        return layer + shape.layers * 4 * shape.hidden
    return shape.layers * layer


def _count_sampling_bytes(
    spec: BaseModel, shape: Shape, expected: Expected, completions: float
) -> tuple[float, float]:
    """Return the bytes of keys and values, and of float32 logits, while sampling a batch.

    transformers pads all sequences of a batch to the longest. vLLM stores only the tokens that
    exist, and its logits are not counted.

    Returns:
        The bytes for the whole batch, and the least bytes that suffice: see `ProcessMemory`.
    """
    token_bytes = shape.count_key_value_bytes(BYTES_PER_NUMBER[get_precision(spec)])
    if spec.compute.sampler == "vllm":
        cached = completions * (expected.prompt + expected.length) * token_bytes
        return cached, (expected.prompt + expected.limit) * token_bytes
    cached = completions * (expected.prompt + expected.estimate_longest(completions)) * token_bytes
    # Three float32 tensors with a logit for each sequence and token of the vocabulary.
    sampling = cached + 3 * 4 * completions * shape.vocabulary
    return sampling, sampling
