"""A clock for the phases of a training loop."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from transformers import TrainerCallback

from rapid.training.usage import read_waited_seconds


def read_synchronized_seconds() -> float:
    """Wait until all kernels on the GPU have ended; return the seconds of a monotonic clock."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # so that a kernel's time is counted in the phase that launched it
    return time.perf_counter()


class PhaseClock:
    """Measures the time that a training loop spends in each phase.

    A phase that begins within another phase pauses the outer one.

    Attributes:
        seconds: wall-clock seconds by phase.
        waited: seconds by phase in which the main thread was ready to run, but waited for its core,
            because other processes used it.
    """

    def __init__(
        self,
        read_seconds: Callable[[], float] = read_synchronized_seconds,
        read_waited: Callable[[], float] = read_waited_seconds,
    ):
        self.seconds: dict[str, float] = defaultdict(float)
        self.waited: dict[str, float] = defaultdict(float)
        self._read_seconds, self._read_waited = read_seconds, read_waited
        self._open_phases: list[str] = []  # the innermost is the last
        self._last_times = read_seconds(), read_waited()  # when a phase last began or ended

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time within the context as phase `name`."""
        self._switch()
        self._open_phases.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open_phases.pop()

    def _switch(self) -> None:
        """Add the time since the last switch to the innermost open phase."""
        now, waited = self._read_seconds(), self._read_waited()
        if self._open_phases:
            phase, (last_time, last_waited) = self._open_phases[-1], self._last_times
            self.seconds[phase] += now - last_time
            self.waited[phase] += waited - last_waited
        self._last_times = now, waited


class OptimizerStepCallback(TrainerCallback):
    """Callback that calls a function after each step of the optimizer."""

    def __init__(self, function: Callable[[], None]):
        self._function = function

    def on_optimizer_step(self, args, state, control, **_):
        self._function()
