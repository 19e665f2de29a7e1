"""Chooses float32 or bfloat16 for forward and backward passes by their measured speed.

On processors with slow or no instructions for bfloat16, float32 is faster. The choice is made once
per run.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from rapid.artifacts.files import write_text
from rapid.training.clock import read_synchronized_seconds

TOKENS, HIDDEN = 512, 1024  # input of the layer that is timed
REPEATS = 7  # number of measurements, of which the fastest counts
# bfloat16 is chosen if it is at least 1.1 times as fast as float32, which is more exact.
MIN_SPEEDUP = 1.1
# How long a process waits for another that still grades; the default of transformers'
# `ddp_timeout`. It has to be set where processes connect first, which is here. DeepSpeed's own
# default is shorter.
PROCESS_TIMEOUT = timedelta(seconds=1800)


class Rates(NamedTuple):
    """Measured FLOP/s (floating-point operations per second) of a linear layer's passes."""

    float32: float
    bfloat16: float

    @property
    def preferred_precision(self) -> str:
        """The precision to compute in: bfloat16 only if it is faster by `MIN_SPEEDUP`."""
        return "bfloat16" if self.bfloat16 >= MIN_SPEEDUP * self.float32 else "float32"

    def __str__(self) -> str:
        return (
            f"measured: {self.bfloat16 / 1e9:,.0f} GFLOP/s in bfloat16, "
            f"{self.float32 / 1e9:,.0f} in float32"
        )


def measure_rates(device: torch.device | str = "cpu") -> Rates:
    """Measure the rates of both precisions on a device.

    With bfloat16 the weights stay in float32, as in mixed precision. The states of random
    generators do not change.
    """
    with torch.random.fork_rng(devices=[]):
        # The weights are drawn on the CPU, whose generator is forked.
        layer = torch.nn.Linear(HIDDEN, HIDDEN).to(device)
        values = torch.ones(TOKENS, HIDDEN, device=device, requires_grad=True)
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    for _ in range(REPEATS):
        for precision, times in seconds.items():
            times.append(_time_passes(layer, values, precision == "bfloat16"))
    flops = 3 * 2 * TOKENS * HIDDEN**2  # of one product in the forward, two in the backward pass
    return Rates(*(flops / min(times) for times in seconds.values()))


def measure_and_broadcast_rates(device: torch.device) -> Rates:
    """Measure the rates of both precisions; return those of the first process in all processes."""
    rates: list[Any] = [measure_rates(device)]
    broadcast_object_list(rates)
    return rates[0]


def _time_passes(layer: torch.nn.Module, values: torch.Tensor, bf16: bool) -> float:
    """Return the seconds of a forward and a backward pass."""
    began = read_synchronized_seconds()
    with torch.autocast(values.device.type, dtype=torch.bfloat16, enabled=bf16):
        output = layer(values)
    output.sum().backward()
    return read_synchronized_seconds() - began


def choose_precision(file: Path) -> str:
    """Return the precision of a run, which its first process chooses when the run begins.

    All processes have to call this.

    Args:
        file: stores the choice, so that a resumed run keeps it.
    """
    choice: list[Any] = [None]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if PartialState(cpu=device == "cpu", timeout=PROCESS_TIMEOUT).is_main_process:
        if not file.exists():
            rates = measure_rates(device)
            print(f"precision: auto chose {rates.preferred_precision} ({rates})")
            write_text(file, rates.preferred_precision)
        choice = [file.read_text(encoding="utf-8")]
    broadcast_object_list(choice)
    return choice[0]
