"""A clock for the phases of a training loop."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from transformers import TrainerCallback

from rapid.training.usage import waited


def now() -> float:
    """Return the seconds of a clock, once GPUs have done what they were given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # a kernel's time belongs to the phase that launched it
    return time.perf_counter()


class PhaseClock:
    """Wall-clock seconds by phase, and those `waited` of them (`rapid.training.usage`).

    A phase entered within another pauses the outer one.
    """

    def __init__(self, now: Callable[[], float] = now, waited: Callable[[], float] = waited):
        self.seconds: dict[str, float] = defaultdict(float)
        self.waited: dict[str, float] = defaultdict(float)
        self._clocks = (now, self.seconds), (waited, self.waited)
        self._running: list[str] = []
        self._since = now(), waited()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens within to `name`."""
        self._switch()
        self._running.append(name)
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    def _switch(self) -> None:
        (now, _), (waited, _) = self._clocks
        times = now(), waited()
        if self._running:
            for (_, by_phase), end, begin in zip(self._clocks, times, self._since, strict=True):
                by_phase[self._running[-1]] += end - begin
        self._since = times


class AfterOptimizer(TrainerCallback):
    """Call something after each step of the optimizer."""

    def __init__(self, then: Callable[[], None]):
        self._then = then

    def on_optimizer_step(self, args, state, control, **_):
        self._then()
