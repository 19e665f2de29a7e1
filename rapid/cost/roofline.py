"""Seconds of counted work on a named GPU: each part is as slow as what bounds it.

1. A decoding step reads all weights and the keys and values of every sequence, or multiplies every
   sequence with all weights: the longer of the two, and what it costs to launch.
2. A forward pass multiplies, 2 operations a weight and token; backward twice that. Launching layers
   bounds small passes: the longer of the two.
3. The optimizer reads and writes its state; processes exchange gradients and weights over the link.

What share of a published rate is reached, and what a launch takes, are assumptions: `Efficiency`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import yaml

from rapid.artifacts.files import BadInput
from rapid.cost.expected import VERDICTS, Expected
from rapid.cost.shapes import Shape
from rapid.cost.work import BYTES, FORWARD, Seconds, Work, precision, processes, subject

FILE = Path(__file__).with_name("gpus.yaml")
ADAM_BYTES = 28  # read and written a parameter: gradient, master weight, two moments, weight
CUDA_CONTEXT = 1.5e9  # bytes of a process, with its libraries


@dataclass(frozen=True)
class GpuRates:
    """The published rates of one GPU."""

    name: str
    memory: float  # bytes
    bandwidth: float  # bytes a second of memory
    bf16: float  # operations a second
    fp32: float
    link: float  # bytes a second to another GPU of the server

    def flops(self, precision: str) -> float:
        """Return operations a second in a precision of params.yaml."""
        return self.bf16 if precision == "bfloat16" else self.fp32


@cache
def gpus() -> dict[str, GpuRates]:
    """Return all known GPUs by short name."""
    units = 1e9, 1e9, 1e12, 1e12, 1e9  # of memory, bandwidth, bf16, fp32, link
    rows = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {
        key: GpuRates(name, *(value * unit for value, unit in zip(values, units, strict=True)))
        for key, (name, *values) in rows.items()
    }


def gpu(name: str) -> GpuRates:
    """Return the GPU of a short name.

    Raises:
        BadInput: there are no rates for it; the message says which there are.
    """
    try:
        return gpus()[name.lower()]
    except KeyError:
        raise BadInput(
            f"--gpu {name}: no published rates for it; known: {', '.join(gpus())}. For another, "
            f"measure: run a job on it and give its folder to --calibrate"
        ) from None


@dataclass(frozen=True)
class Efficiency:
    """Shares of the published rates that are reached, and seconds that do not depend on sizes."""

    bandwidth: float = 0.7
    arithmetic: float = 0.4
    link: float = 0.5
    layer: float = 0.8e-3  # launching a layer, forward, from Python
    graph_step: float = 3e-3  # a decoding step of vLLM besides reading and multiplying
    step: float = 0.03  # an optimizer step: gradient norm, logging, the loop
    batch: float = 0.05  # an inference batch: tokenizing, texts
    sync: float = 0.1  # weights to vLLM
    startup: float = 30.0  # imports, loading a model
    startup_vllm: float = 60.0  # building the engine


@dataclass(frozen=True)
class Roofline:
    """A GPU, the models' shapes, and the seconds of a verdict by benchmark."""

    gpu: GpuRates
    shapes: Mapping[str, Shape]
    verdict: Mapping[str, float] = field(default_factory=lambda: VERDICTS)
    efficiency: Efficiency = Efficiency()
    base_memory: float = CUDA_CONTEXT

    @property
    def memory(self) -> float:
        """Bytes of memory of the GPU."""
        return self.gpu.memory

    def seen(self, benchmark: str, model: str) -> Expected | None:
        """Return None: published rates say nothing of completions."""

    def seconds(self, work: Work) -> Seconds:
        """Return the seconds of one job by phase."""
        spec, rate = work.spec, self.efficiency
        benchmark, model = subject(spec)
        shape, size, count = self.shapes[model], BYTES[precision(spec)], processes(spec)
        flops = self.gpu.flops(precision(spec)) * rate.arithmetic
        bandwidth, link = self.gpu.bandwidth * rate.bandwidth, self.gpu.link * rate.link
        layers = shape.layers * rate.layer
        vllm = work.calls > 0 and spec.compute.sampler == "vllm"

        def forward(tokens: float, passes: float, context: float) -> float:
            """Return the seconds of passes whose tokens attend to `context` tokens each."""
            attention = 2 * shape.layers * shape.query_width * context
            return max(2 * (shape.multiplied + attention) * tokens / flops, passes * layers)

        sampling = reference = 0.0
        if work.calls:
            rows = work.rows / work.decoding_steps  # sequences in a step, on average
            cached = rows * work.context * shape.key_value_bytes(size)
            reading = (shape.multiplied * size + cached) / bandwidth
            computing = max(reading, 2 * shape.multiplied * rows / flops)
            prompts = max(work.calls, work.completions / work.group) * work.prompt
            prefill = forward(prompts, work.calls, work.prompt / 2)
            split = 1 if work.steps else count  # a teacher is shared out over GPUs
            launching = rate.graph_step if vllm else layers
            sampling = work.decoding_steps * (computing / split + launching) + prefill / split
        if work.reference_tokens:
            reference = forward(work.reference_tokens, work.steps, work.context)
        share = shape.parameters / count
        sent = 2 * size * (shape.parameters - share)  # gradients, then weights
        optimizer = ADAM_BYTES * share / bandwidth + sent / link
        return Seconds(
            sampling=sampling,
            grading=work.grading(self.verdict[benchmark], sampling),
            backpropagation=forward(work.tokens, work.passes, work.context) / FORWARD
            + work.steps * optimizer,
            sync=work.batches * rate.sync * vllm,
            other=work.steps * rate.step + work.batches * rate.batch + reference,
            startup=work.loads * (rate.startup + rate.startup_vllm * vllm),
        )

    def notes(self) -> list[str]:
        """Return what a reader should know of these rates, a sentence each."""
        reached = ", ".join(f"{name} {value:g}" for name, value in asdict(self.efficiency).items())
        return [
            f"{self.gpu.name}: published {self.gpu.bandwidth / 1e9:g} GB/s, "
            f"{self.gpu.bf16 / 1e12:g} TFLOP/s in bfloat16 and {self.gpu.fp32 / 1e12:g} in float32, "
            f"{self.gpu.link / 1e9:g} GB/s between GPUs",
            f"reached shares of these rates, and seconds: {reached}",
            "seconds of a verdict: " + ", ".join(f"{k} {v:g}" for k, v in self.verdict.items()),
        ]
