"""Callbacks for what a run leaves beside its model: a record of each step, models on the way."""

import time
from collections.abc import Callable
from pathlib import Path

from transformers import TrainerCallback

from rapid.artifacts.runs import StepRecord
from rapid.training.usage import Usage

PHASES = ("sampling", "grading", "backpropagation", "sync")
METRICS = ("signal", "staleness", "clip_fraction", "weight", "kl", "run")  # logged as rapid/...


class StepRecorder(TrainerCallback):
    """Collect a `StepRecord` per optimizer step from the logs of a trainer that logs each step.

    `steps` are the records, `seconds` the wall-clock seconds of the training loop so far, without
    those in which it was `pause`d. `used` is what it had of its cores, once it has ended. `clock`
    is a `PhaseClock`'s seconds by phase, if there is one.
    """

    def __init__(self):
        self.steps: list[StepRecord] = []
        self.began = 0.0  # on the clock of time.perf_counter
        self.used = Usage(0, 0, 0)
        self.clock: dict[str, float] = {}
        self._clocked: dict[str, float] = {}
        self._paused = 0.0
        self._ended: float | None = None
        self._begin = self.used

    @property
    def seconds(self) -> float:
        """The wall-clock seconds of the training loop so far."""
        return (self._ended or time.perf_counter()) - self.began - self._paused

    def pause(self, do: Callable[[], None]) -> None:
        """Do something whose time is not the run's."""
        since, used = time.perf_counter(), Usage.now().since(self._begin)
        do()
        self._begin = Usage.now().since(used)
        self._paused += time.perf_counter() - since

    def on_train_begin(self, args, state, control, **kwargs):
        self._begin = Usage.now()
        self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self._ended = time.perf_counter()
        self.used = Usage.now().since(self._begin)

    def on_log(self, args, state, control, logs, **kwargs):
        if "grad_norm" not in logs:  # the closing summary
            return
        self.steps.append(
            StepRecord(
                step=state.global_step,
                seconds=self.seconds,
                loss=logs["loss"],
                gradient_norm=logs["grad_norm"],
                reward=logs.get("rapid/accuracy"),
                completion_length=logs.get("rapid/length"),
                **{name: logs.get(f"rapid/{name}") for name in METRICS},
                **self._phases(),
            )
        )

    def _phases(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call."""
        now = {name: self.clock.get(name, 0.0) for name in PHASES if self.clock}
        passed = {name: now[name] - self._clocked.get(name, 0.0) for name in now}
        self._clocked = now
        return passed


class Snapshots(TrainerCallback):
    """Keep `count` models on the way, at equal distances from the first step to the last.

    Args:
        folder: where step12/, step24/, ... go.
        save: saves the model as it is into a folder.
        recorder: the time that saving takes is not the run's.
    """

    def __init__(
        self, count: int, folder: Path, save: Callable[[str], None], recorder: StepRecorder
    ):
        self._count, self._folder, self._save, self._recorder = count, folder, save, recorder
        self._at: set[int] = set()

    def on_train_begin(self, args, state, control, **kwargs):
        last, parts = state.max_steps, self._count + 1
        self._at = {round(last * part / parts) for part in range(1, parts)} - {0, last}

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step in self._at:
            folder = str(self._folder / f"step{state.global_step}")
            self._recorder.pause(lambda: self._save(folder))
