"""A clock for the phases of a training loop."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from transformers import TrainerCallback

from rapid.training.usage import waited


def now() -> float:
    """Return the time of a monotonic clock, seconds, after all kernels on the GPU have ended."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # count a kernel's time to the phase that launched it
    return time.perf_counter()


class PhaseClock:
    """Measures the time that a training loop spends in each phase.

    A phase that is entered within another one pauses the outer phase.

    Attributes:
        seconds: wall-clock seconds by phase.
        waited: the part of `seconds` in which other processes used the core, by phase: see
            `rapid.training.usage.waited`.

    Args:
        now, waited: clocks that return seconds.
    """

    def __init__(self, now: Callable[[], float] = now, waited: Callable[[], float] = waited):
        self.seconds: dict[str, float] = defaultdict(float)
        self.waited: dict[str, float] = defaultdict(float)
        self._clocks = (now, self.seconds), (waited, self.waited)
        self._running: list[str] = []  # the phases that are open, the innermost last
        self._since = now(), waited()  # times of both clocks when a phase last began or ended

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time within the context as phase `name`."""
        self._switch()
        self._running.append(name)
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    def _switch(self) -> None:
        """Add the time since the last switch to the innermost open phase."""
        (now, _), (waited, _) = self._clocks
        times = now(), waited()
        if self._running:
            for (_, by_phase), end, begin in zip(self._clocks, times, self._since, strict=True):
                by_phase[self._running[-1]] += end - begin
        self._since = times


class OptimizerStepCallback(TrainerCallback):
    """Callback that calls `then` after each step of the optimizer."""

    def __init__(self, then: Callable[[], None]):
        self._then = then

    def on_optimizer_step(self, args, state, control, **_):
        self._then()
