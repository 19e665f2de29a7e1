"""Seconds of counted work on a machine: each part is as slow as what bounds it.

1. A decoding step reads all weights and the keys and values of every sequence, or multiplies every
   sequence with all weights: the longer of the two, and what it costs to launch. Prompts are not
   counted.
2. A forward pass multiplies, 2 operations a weight and token; backward twice that. Launching layers
   bounds small passes: the longer of the two.
3. The optimizer reads and writes its state; processes exchange gradients and weights over the link.

Of a named GPU the rates are published ones; what share of them is reached, and what a launch takes,
are assumptions in efficiency.yaml. Runs tell how many times as long each phase takes on the machine
that made them (`rapid.cost.measured`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rapid.artifacts.files import BadInput
from rapid.cost.expected import VERDICTS
from rapid.cost.shapes import Shape
from rapid.cost.work import BYTES, FORWARD, Work, precision, processes, subject
from rapid.text import suggest_name

ADAM_BYTES = 28  # read and written a parameter: gradient, master weight, two moments, weight
CUDA_CONTEXT = 1.5e9  # bytes of a process, with its libraries
USUAL_GPU = "a6000"  # where only memory is asked for, or runs tell how fast another one is


@dataclass(frozen=True)
class DeviceRates:
    """The rates of a GPU, or of a CPU core."""

    name: str
    memory: float  # bytes
    bandwidth: float  # bytes a second of memory
    bf16: float  # operations a second
    fp32: float
    link: float  # bytes a second to another GPU of the server


CORE = DeviceRates("a CPU core", 0.0, 20e9, 1e11, 1e11, 1e10)  # runs tell how fast it is


def gpu(name: str) -> DeviceRates:
    """Return the GPU of a short name in gpus.yaml.

    Raises:
        BadInput: there are no rates for it; the message says which there are.
    """
    gpus = _read("gpus.yaml")
    if name.lower() not in gpus:
        raise BadInput(
            f"--gpu {name}: its rates are not known; known: "
            f"{', '.join(gpus)}{suggest_name(name, gpus)}. For another GPU, run a job on "
            "it and pass its folder to --calibrate"
        )
    title, *rates = gpus[name.lower()]
    units = 1e9, 1e9, 1e12, 1e12, 1e9  # of memory, bandwidth, bf16, fp32, link
    return DeviceRates(title, *(rate * unit for rate, unit in zip(rates, units, strict=True)))


def efficiency(device: str) -> dict[str, float]:
    """Return what efficiency.yaml assumes of `gpu` or `cpu`."""
    return _read("efficiency.yaml")[device]


def _read(name: str) -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Machine:
    """A device by its rates, and what runs on it showed."""

    rates: DeviceRates
    efficiency: Mapping[str, float]
    shapes: Mapping[str, Shape]  # of models, by name
    verdict: Mapping[str, float] = field(default_factory=lambda: VERDICTS)  # seconds by benchmark
    base_memory: float = CUDA_CONTEXT  # bytes of a process besides what its model explains
    # Measured over computed seconds by phase, of a model ("": of all) in imitation (True) or RL.
    scale: Mapping[tuple[str, bool], Mapping[str, float]] = field(default_factory=dict)
    # Fields of `Expected` that runs showed, by benchmark and model ("": of all).
    seen: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader should know of these rates, a sentence each

    def seconds(self, work: Work) -> dict[str, float]:
        """Return the seconds of one job by phase, as in a run's summary.json."""
        spec, rate = work.spec, self.efficiency
        benchmark, model = subject(spec)
        shape, size, count = self.shapes[model], BYTES[precision(spec)], processes(spec)
        peak = self.rates.bf16 if precision(spec) == "bfloat16" else self.rates.fp32
        flops, bandwidth = peak * rate["arithmetic"], self.rates.bandwidth * rate["bandwidth"]
        layers = shape.layers * rate["layer"]
        vllm = work.completions > 0 and spec.compute.sampler == "vllm"
        # Tokens that a token attends to, about.
        context = work.expected.prompt + work.expected.length / 2

        sampling = 0.0
        if work.decoding_steps:
            rows = work.rows / work.decoding_steps  # sequences in a step, on average
            cached = rows * context * shape.key_value_bytes(size)
            reading = (shape.multiplied * size + cached) / bandwidth
            computing = max(reading, 2 * shape.multiplied * rows / flops)
            split = 1 if work.steps else count  # a teacher is shared out over GPUs
            launching = rate["graph_step"] if vllm else layers
            sampling = work.decoding_steps * (computing / split + launching)
        attention = 2 * shape.layers * shape.query_width * context
        multiplying = 2 * (shape.multiplied + attention) * work.tokens / flops
        share = shape.parameters / count
        sent = 2 * size * (shape.parameters - share)  # gradients, then weights
        optimizer = ADAM_BYTES * share / bandwidth + sent / (self.rates.link * rate["link"])
        computed = {
            "sampling": sampling,
            "backpropagation": max(multiplying, work.passes * layers) / FORWARD
            + work.steps * optimizer,
            "sync": work.batches * rate["sync"] * vllm,
            "other": work.steps * rate["step"] + work.batches * rate["batch"],
            "startup": work.loads * (rate["startup"] + rate["startup_vllm"] * vllm),
        }
        keys = (model, work.imitates), ("", work.imitates), ("", False)
        scale = next((self.scale[key] for key in keys if key in self.scale), {})
        seconds = {phase: value * scale.get(phase, 1.0) for phase, value in computed.items()}
        grading = self.verdict[benchmark] * work.completions
        if work.streams:  # what it has to wait for
            grading = max(0.0, grading - seconds["sampling"])
        return seconds | {"grading": grading}

    def runtime(self, work: Work) -> float:
        """Return the seconds of one job without start-up, as in a run's summary.json."""
        seconds = self.seconds(work)
        return sum(seconds.values()) - seconds["startup"]


def named_gpu(name: str, shapes: Mapping[str, Shape]) -> Machine:
    """Return a GPU by its published rates.

    Raises:
        BadInput: there are no rates for it.
    """
    rates, assumed = gpu(name), efficiency("gpu")
    reached = ", ".join(f"{key} {value:g}" for key, value in assumed.items())
    notes = (
        f"{rates.name}: published {rates.bandwidth / 1e9:g} GB/s, "
        f"{rates.bf16 / 1e12:g} TFLOP/s in bfloat16 and {rates.fp32 / 1e12:g} in "
        f"float32, {rates.link / 1e9:g} GB/s between GPUs",
        f"assumed shares of these rates, and seconds of overhead: {reached}",
    )
    return Machine(rates, assumed, shapes, notes=notes)


def unmeasured(device: str, shapes: Mapping[str, Shape]) -> Machine:
    """Return a machine with `cpu` or `gpu`, whose speed runs have to tell."""
    if device == "gpu":
        return named_gpu(USUAL_GPU, shapes)
    return Machine(CORE, efficiency("cpu"), shapes)
