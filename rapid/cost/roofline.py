"""Seconds of counted work on a named GPU: each part is as slow as what bounds it.

1. A decoding step reads all weights and the keys and values of every sequence, or multiplies every
   sequence with all weights: the longer of the two, and what it costs to launch.
2. A forward pass multiplies, 2 operations a weight and token; backward twice that. Launching layers
   bounds small passes: the longer of the two.
3. The optimizer reads and writes its state; processes exchange gradients and weights over the link.

What share of a published rate is reached, and what a launch takes, are assumptions in
efficiency.yaml.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import yaml

from rapid.artifacts.files import BadInput
from rapid.cost.expected import VERDICTS, Expected
from rapid.cost.shapes import Shape
from rapid.cost.work import BYTES, FORWARD, Seconds, Work, precision, processes, subject
from rapid.text import suggest

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


def gpu(name: str) -> GpuRates:
    """Return the GPU of a short name in gpus.yaml.

    Raises:
        BadInput: there are no rates for it; the message says which there are.
    """
    known = _read("gpus.yaml")
    if name.lower() not in known:
        raise BadInput(
            f"--gpu {name}: no published rates for it; known: {', '.join(known)}"
            f"{suggest(name, known)}. For another, "
            f"measure: run a job on it and give its folder to --calibrate"
        )
    title, *rates = known[name.lower()]
    units = 1e9, 1e9, 1e12, 1e12, 1e9  # of memory, bandwidth, bf16, fp32, link
    return GpuRates(title, *(rate * unit for rate, unit in zip(rates, units, strict=True)))


def efficiency() -> SimpleNamespace:
    """Return what is assumed in efficiency.yaml."""
    return SimpleNamespace(**_read("efficiency.yaml"))


def _read(name: str) -> dict:
    return yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Roofline:
    """A GPU by its published rates."""

    gpu: GpuRates
    shapes: Mapping[str, Shape]
    # Seconds by benchmark.
    verdict: Mapping[str, float] = field(default_factory=lambda: VERDICTS)
    efficiency: SimpleNamespace = field(default_factory=efficiency)
    base_memory: float = CUDA_CONTEXT

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

        sampling = 0.0
        if work.calls:
            rows = work.rows / work.decoding_steps  # sequences in a step, on average
            cached = rows * work.context * shape.key_value_bytes(size)
            reading = (shape.multiplied * size + cached) / bandwidth
            computing = max(reading, 2 * shape.multiplied * rows / flops)
            prompts = max(work.calls, work.completions / work.group) * work.expected.prompt
            prefill = forward(prompts, work.calls, work.expected.prompt / 2)
            split = 1 if work.steps else count  # a teacher is shared out over GPUs
            launching = rate.graph_step if vllm else layers
            sampling = work.decoding_steps * (computing / split + launching) + prefill / split
        share = shape.parameters / count
        sent = 2 * size * (shape.parameters - share)  # gradients, then weights
        optimizer = ADAM_BYTES * share / bandwidth + sent / link
        return Seconds(
            sampling=sampling,
            grading=work.grading(self.verdict[benchmark], sampling),
            backpropagation=forward(work.tokens, work.passes, work.context) / FORWARD
            + work.steps * optimizer,
            sync=work.batches * rate.sync * vllm,
            other=work.steps * rate.step + work.batches * rate.batch,
            startup=work.loads * (rate.startup + rate.startup_vllm * vllm),
        )

    def notes(self) -> list[str]:
        """Return what a reader should know of these rates, a sentence each."""
        reached = ", ".join(f"{name} {value:g}" for name, value in vars(self.efficiency).items())
        return [
            f"{self.gpu.name}: published {self.gpu.bandwidth / 1e9:g} GB/s, "
            f"{self.gpu.bf16 / 1e12:g} TFLOP/s in bfloat16 and {self.gpu.fp32 / 1e12:g} in "
            f"float32, {self.gpu.link / 1e9:g} GB/s between GPUs",
            f"reached shares of these rates, and seconds: {reached}",
            "seconds of a verdict: " + ", ".join(f"{k} {v:g}" for k, v in self.verdict.items()),
        ]
