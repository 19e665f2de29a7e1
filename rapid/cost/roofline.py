"""Computes the seconds of counted work on a machine with a roofline model.

In a roofline model the slowest resource decides how long a part of the work takes.
1. A decoding step reads all weights and the keys and values of every sequence from memory, and
   multiplies one token of every sequence by all weights. It takes the longer of these two times,
   plus the time of launching kernels. The prompts' forward passes are not counted.
2. A forward pass takes 2 FLOPs per weight and token, and the backward pass twice as many. A pass
   takes the longer of the time of its FLOPs and the time of launching the layers' kernels.
3. The optimizer reads and writes its state. Processes exchange gradients and weights over the link.

If the user names a GPU, its published rates are used. The share of these rates that is reached, and
the time of launching kernels, are assumptions in efficiency.yaml. If there are earlier runs of this
machine, the seconds of each phase are multiplied by a factor that is fitted to these runs
(`rapid.cost.measured`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rapid.artifacts.files import BadInput
from rapid.cost.expected import DEFAULT_VERDICT_SECONDS
from rapid.cost.shapes import Shape
from rapid.cost.work import (
    BYTES_PER_NUMBER,
    FORWARD_SHARE,
    Work,
    count_processes,
    get_benchmark_and_model,
    get_precision,
)
from rapid.text import suggest_name

# Bytes per parameter that Adam in float32 reads (gradient, weight, two moments: 16) and writes
# (weight, two moments: 12). With bfloat16 gradients it reads 2 bytes less, and writes 2 bytes more:
# a copy of the weight in bfloat16.
ADAM_BYTES = 28
CUDA_CONTEXT = 1.5e9  # bytes of GPU memory of a process with CUDA's libraries and no model
# The GPU that is assumed if rates do not matter, because only memory is estimated or factors are
# fitted to runs.
DEFAULT_GPU = "a6000"


@dataclass(frozen=True)
class DeviceRates:
    """Published rates of a GPU, or assumed ones of a CPU core."""

    name: str
    memory: float  # bytes; not used for a CPU core
    bandwidth: float  # of memory, bytes per second
    bf16: float  # FLOP/s in bfloat16
    fp32: float  # FLOP/s in float32
    link: float  # to another GPU of the server, bytes per second


# Only the ratios of these rates matter, because a factor is fitted to runs.
CORE = DeviceRates("a CPU core", memory=0.0, bandwidth=20e9, bf16=1e11, fp32=1e11, link=1e10)


def get_gpu_rates(name: str) -> DeviceRates:
    """Return the rates of a GPU by its short name in gpus.yaml.

    Raises:
        BadInput: gpus.yaml does not have the name; the message lists the names in it.
    """
    gpus = _read_yaml("gpus.yaml")
    if name.lower() not in gpus:
        raise BadInput(
            f"--gpu {name}: its rates are not known; the known GPUs are "
            f"{', '.join(gpus)}{suggest_name(name, gpus)}. For another GPU, make runs on it and "
            "pass their folder to --calibrate"
        )
    title, *rates = gpus[name.lower()]
    units = 1e9, 1e9, 1e12, 1e12, 1e9  # memory, bandwidth, bf16, fp32, link
    return DeviceRates(title, *(rate * unit for rate, unit in zip(rates, units, strict=True)))


def _read_yaml(name: str) -> dict[str, Any]:
    """Return the contents of a YAML file in this module's folder."""
    return yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))


EFFICIENCY = _read_yaml("efficiency.yaml")  # assumptions about a device, "gpu" or "cpu"


@dataclass(frozen=True)
class Machine:
    """The rates of a device, and values measured in runs on it."""

    rates: DeviceRates
    efficiency: Mapping[str, float]  # a section of efficiency.yaml
    shapes: Mapping[str, Shape]  # sizes of models, by name
    # Seconds of a verdict in one thread, by benchmark.
    verdict_seconds: Mapping[str, float] = field(default_factory=lambda: DEFAULT_VERDICT_SECONDS)
    base_memory: float = CUDA_CONTEXT  # bytes of a process without its model, such as libraries
    # (model, whether the algorithm is SFT) -> phase -> ratio of measured to computed seconds. "" as
    # the model stands for all models.
    factors: Mapping[tuple[str, bool], Mapping[str, float]] = field(default_factory=dict)
    # (benchmark, model) -> fields of `Expected` measured in runs; "" stands for all models.
    measured: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # sentences on where the rates come from, for the plan

    def estimate_seconds(self, work: Work) -> dict[str, float]:
        """Return the seconds of one job by phase, as in a run's summary.json."""
        spec, assumed = work.spec, self.efficiency
        benchmark, model = get_benchmark_and_model(spec)
        shape, count = self.shapes[model], count_processes(spec)
        size = BYTES_PER_NUMBER[get_precision(spec)]
        peak = self.rates.bf16 if get_precision(spec) == "bfloat16" else self.rates.fp32
        flops, bandwidth = peak * assumed["arithmetic"], self.rates.bandwidth * assumed["bandwidth"]
        launch_seconds = shape.layers * assumed["layer"]  # of a forward pass from Python
        vllm = work.completions > 0 and spec.compute.sampler == "vllm"
        # Tokens that a completion's token attends to, on average.
        context = work.expected.prompt + work.expected.length / 2

        sampling = 0.0
        if work.decoding_steps:
            rows = work.rows / work.decoding_steps  # mean number of sequences in a step
            cached_bytes = rows * context * shape.count_key_value_bytes(size)
            read_seconds = (shape.matmul_weights * size + cached_bytes) / bandwidth
            device_seconds = max(read_seconds, 2 * shape.matmul_weights * rows / flops)
            # A training process samples its own completions. The GPUs of a teacher, which takes no
            # optimizer steps, share its weights and its work.
            split = 1 if work.steps else count
            step_launch_seconds = assumed["graph_step"] if vllm else launch_seconds
            sampling = work.decoding_steps * (device_seconds / split + step_launch_seconds)
        attention = 2 * shape.layers * shape.query_width * context  # multiply-adds of a token
        forward_seconds = max(
            2 * (shape.matmul_weights + attention) * work.tokens / flops,
            work.passes * launch_seconds,
        )
        local_parameters = shape.parameters / count  # those that one process updates
        sent_bytes = 2 * size * (shape.parameters - local_parameters)  # gradients, then weights
        link = self.rates.link * assumed["link"]
        optimizer_seconds = ADAM_BYTES * local_parameters / bandwidth + sent_bytes / link
        computed = {
            "sampling": sampling,
            "backpropagation": forward_seconds / FORWARD_SHARE + work.steps * optimizer_seconds,
            "sync": work.batches * assumed["sync"] * vllm,
            "other": work.steps * assumed["step"] + work.batches * assumed["batch"],
            "startup": work.loads * (assumed["startup"] + assumed["startup_vllm"] * vllm),
        }
        # In this order: the factors of this model's runs of this kind (SFT or RL), of all models'
        # runs of this kind, or of all models' RL runs.
        keys = (model, work.is_supervised), ("", work.is_supervised), ("", False)
        factors = next((self.factors[key] for key in keys if key in self.factors), {})
        seconds = {phase: value * factors.get(phase, 1.0) for phase, value in computed.items()}
        grading = 0.0
        if work.completions:
            grading = self.verdict_seconds[benchmark] * work.completions / spec.compute.threads
        if work.grades_while_sampling:  # then the run only waits for verdicts after sampling
            grading = max(0.0, grading - seconds["sampling"])
        return seconds | {"grading": grading}

    def estimate_runtime(self, work: Work) -> float:
        """Return the seconds of one job without start-up, like `runtime.total` in summary.json."""
        seconds = self.estimate_seconds(work)
        return sum(seconds.values()) - seconds["startup"]


def build_gpu_machine(name: str, shapes: Mapping[str, Shape]) -> Machine:
    """Return a machine with the published rates of a GPU in gpus.yaml.

    Raises:
        BadInput: the name is unknown.
    """
    rates, assumed = get_gpu_rates(name), EFFICIENCY["gpu"]
    assumptions = ", ".join(f"{key} {value:g}" for key, value in assumed.items())
    notes = (
        f"{rates.name}: published {rates.bandwidth / 1e9:g} GB/s, "
        f"{rates.bf16 / 1e12:g} TFLOP/s in bfloat16 and {rates.fp32 / 1e12:g} in "
        f"float32, {rates.link / 1e9:g} GB/s between GPUs",
        f"assumed shares of these rates, and seconds of overhead: {assumptions}",
    )
    return Machine(rates, assumed, shapes, notes=notes)


def build_default_machine(device: str, shapes: Mapping[str, Shape]) -> Machine:
    """Return a machine with default rates for a device, "gpu" or "cpu", before any calibration."""
    if device == "gpu":
        return build_gpu_machine(DEFAULT_GPU, shapes)
    return Machine(CORE, EFFICIENCY["cpu"], shapes)
