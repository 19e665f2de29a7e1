"""Seconds of counted work on a named GPU: each part is as slow as what bounds it.

1. A decoding step reads all weights and the keys and values of every sequence, or multiplies every
   sequence with all weights: the longer of the two, and what it costs to launch.
2. A forward pass multiplies, 2 operations a weight and token; backward twice that. Launching layers
   bounds small passes: the longer of the two.
3. The optimizer reads and writes its state; processes exchange gradients and weights over the link.

What share of a published rate is reached, and what a launch takes, are assumptions: `Efficiency`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from rapid.cost.gpus import Gpu
from rapid.cost.seconds import Seconds, grading_seconds
from rapid.cost.sizes import Shape
from rapid.cost.work import Sampling, Training, Work

BYTES = {"bfloat16": 2, "float32": 4}
ADAM_BYTES = 28  # read and written a parameter: gradient, master weight, two moments, weight
BACKWARD = 2  # times a forward pass


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

    def describe(self) -> str:
        return ", ".join(f"{one.name} {getattr(self, one.name):g}" for one in fields(self))


@dataclass(frozen=True)
class Roofline:
    """A GPU, the models' shapes, and the seconds of a verdict by benchmark."""

    gpu: Gpu
    shapes: Mapping[str, Shape]
    verdict: Mapping[str, float]
    efficiency: Efficiency = Efficiency()

    def seconds(self, work: Work) -> Seconds:
        shape, rate = self.shapes[work.model], self.efficiency
        sampling = sum(self._sampling(one, work, shape) for one in work.sampling)
        vllm = work.sampler == "vllm" and bool(work.sampling)
        backpropagation = other = 0.0
        if work.training:
            backpropagation = self._training(work.training, work, shape)
            other = work.training.steps * rate.step + work.sampling_batches * rate.batch
            if tokens := work.training.reference_tokens:
                context = work.training.context
                other += self._forward(tokens, work.training.steps, work, shape, context)
        return Seconds(
            sampling=sampling,
            grading=grading_seconds(work, self.verdict[work.benchmark], sampling),
            backpropagation=backpropagation,
            sync=work.sampling_batches * rate.sync * vllm,
            other=other,
            startup=work.loads * (rate.startup + rate.startup_vllm * vllm),
        )

    def notes(self) -> list[str]:
        return [
            f"{self.gpu.name}: published {self.gpu.bandwidth / 1e9:g} GB/s, "
            f"{self.gpu.bf16 / 1e12:g} TFLOP/s in bfloat16 and {self.gpu.fp32 / 1e12:g} in float32, "
            f"{self.gpu.link / 1e9:g} GB/s between GPUs",
            f"reached shares of these rates, and seconds: {self.efficiency.describe()}",
            "seconds of a verdict: " + ", ".join(f"{k} {v:g}" for k, v in self.verdict.items()),
        ]

    def _sampling(self, one: Sampling, work: Work, shape: Shape) -> float:
        size, rate = BYTES[work.precision], self.efficiency
        split = work.processes if not work.training else 1  # a teacher is shared out over GPUs
        rows = one.rows / one.steps  # sequences in a step, on average
        cached = rows * (one.prompt + one.tokens / 2) * key_value_bytes(shape, size)
        reading = (shape.multiplied * size + cached) / (self.gpu.bandwidth * rate.bandwidth)
        multiplying = 2 * shape.multiplied * rows / self._arithmetic(work)
        launching = rate.graph_step if work.sampler == "vllm" else shape.layers * rate.layer
        prompts = max(1.0, one.completions / one.sharing) * one.prompt
        prefill = self._forward(prompts, 1, work, shape, one.prompt / 2) / split
        return one.calls * (one.steps * (max(reading, multiplying) / split + launching) + prefill)

    def _training(self, one: Training, work: Work, shape: Shape) -> float:
        rate, size = self.efficiency, BYTES[work.precision]
        both = (1 + BACKWARD) * self._forward(one.tokens, one.passes, work, shape, one.context)
        again = self._forward(one.forward_tokens, one.forward_passes, work, shape, one.context)
        share = shape.parameters / work.processes
        optimizer = ADAM_BYTES * share / (self.gpu.bandwidth * rate.bandwidth)
        sent = 2 * size * (shape.parameters - share)  # gradients reduced, weights gathered
        exchange = sent / (self.gpu.link * rate.link)
        return both + again + one.steps * (optimizer + exchange)

    def _forward(
        self, tokens: float, passes: float, work: Work, shape: Shape, context: float
    ) -> float:
        """Seconds of forward passes with so many tokens in all."""
        attention = 2 * shape.layers * shape.heads * shape.head_dim * context
        multiplying = 2 * (shape.multiplied + attention) * tokens / self._arithmetic(work)
        return max(multiplying, passes * shape.layers * self.efficiency.layer)

    def _arithmetic(self, work: Work) -> float:
        return self.gpu.flops(work.precision) * self.efficiency.arithmetic


def key_value_bytes(shape: Shape, size: int) -> int:
    """Of one token's keys and values in all layers, at so many bytes a number."""
    return 2 * shape.layers * shape.kv_width * size
