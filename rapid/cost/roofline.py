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
from rapid.cost.work import BYTES, FORWARD, Sampling, Seconds, Work

FILE = Path(__file__).with_name("gpus.yaml")
ADAM_BYTES = 28  # read and written a parameter: gradient, master weight, two moments, weight
CUDA_CONTEXT = 1.5e9  # bytes of a process, with its libraries


class UnknownGpu(BadInput):
    """A GPU without published rates here."""


@dataclass(frozen=True)
class GpuRates:
    """One GPU: bytes of memory, bytes a second of memory and of the link, operations a second."""

    name: str
    memory: float
    bandwidth: float
    bf16: float
    fp32: float
    link: float

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
        UnknownGpu: there are no rates for it; the message says which there are.
    """
    try:
        return gpus()[name.lower()]
    except KeyError:
        raise UnknownGpu(
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
        rate, vllm = self.efficiency, work.sampler == "vllm" and bool(work.sampling)
        sampling = sum(self._sampling(one, work) for one in work.sampling)
        other = work.steps * rate.step + work.batches * rate.batch
        if work.reference_tokens:
            other += self._forward(work, work.reference_tokens, work.steps, work.context)
        return Seconds(
            sampling=sampling,
            grading=work.grading(self.verdict[work.benchmark], sampling),
            backpropagation=self._training(work),
            sync=work.batches * rate.sync * vllm,
            other=other,
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

    def _sampling(self, one: Sampling, work: Work) -> float:
        """Return the seconds of calls of the sampler."""
        shape, size, rate = self.shapes[work.model], BYTES[work.precision], self.efficiency
        split = 1 if work.steps else work.processes  # a teacher is shared out over GPUs
        rows = one.rows / one.steps  # sequences in a step, on average
        cached = rows * (work.prompt + work.length / 2) * shape.key_value_bytes(size)
        reading = (shape.multiplied * size + cached) / (self.gpu.bandwidth * rate.bandwidth)
        multiplying = 2 * shape.multiplied * rows / self._arithmetic(work)
        launching = rate.graph_step if work.sampler == "vllm" else shape.layers * rate.layer
        prompts = max(1.0, one.completions / work.group) * work.prompt
        prefill = self._forward(work, prompts, 1, work.prompt / 2) / split
        return one.calls * (one.steps * (max(reading, multiplying) / split + launching) + prefill)

    def _training(self, work: Work) -> float:
        """Return the seconds of passes and of optimizer steps."""
        shape, rate = self.shapes[work.model], self.efficiency
        both = self._forward(work, work.tokens, work.passes, work.context) / FORWARD
        share = shape.parameters / work.processes
        optimizer = ADAM_BYTES * share / (self.gpu.bandwidth * rate.bandwidth)
        sent = 2 * BYTES[work.precision] * (shape.parameters - share)  # gradients, then weights
        return both + work.steps * (optimizer + sent / (self.gpu.link * rate.link))

    def _forward(self, work: Work, tokens: float, passes: float, context: float) -> float:
        """Return the seconds of forward passes whose tokens attend to `context` tokens each."""
        shape = self.shapes[work.model]
        attention = 2 * shape.layers * shape.query_width * context
        multiplying = 2 * (shape.multiplied + attention) * tokens / self._arithmetic(work)
        return max(multiplying, passes * shape.layers * self.efficiency.layer)

    def _arithmetic(self, work: Work) -> float:
        return self.gpu.flops(work.precision) * self.efficiency.arithmetic
