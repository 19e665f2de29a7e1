"""Callbacks that record each optimizer step of a run, and save models during the run."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from rapid.artifacts.manifests import peak_memory_mb
from rapid.artifacts.metrics import select_metrics
from rapid.artifacts.runs import PHASES, Progress, StepRecord
from rapid.training.clock import PhaseClock
from rapid.training.usage import Usage


class StepRecorder(TrainerCallback, ExportableState):
    """Collects a `StepRecord` per optimizer step from the logs of a trainer that logs each step.

    Checkpoints contain `state()`, so that a resumed run continues all counts from its last step.

    Attributes:
        steps: the records so far.
        seconds: wall-clock time of the training loop so far, without `pause`s and saves.
        used: CPU time, and time lost to other processes; set when training has ended.
        clock: the trainer's clock of phases, if it has one; set by the caller.
    """

    def __init__(self):
        self.steps: list[StepRecord] = []
        self.began = 0.0  # on the clock of time.perf_counter
        self.used = Usage(0, 0, 0)
        self.clock: PhaseClock | None = None
        self._clocked: dict[str, float] = {}  # seconds by phase at the last logged step
        self._paused = 0.0  # seconds of all pauses, minus the run's seconds before a resume
        self._pause = 0.0, self.used  # start of the last pause, and the usage up to it
        self._ended: float | None = None  # end of training, on the clock of `began`
        self._begin = self.used  # usage that is subtracted to get the run's own
        self._peak_memory_mb = 0.0  # peak before the run was resumed
        self._progress_file: Path | None = None  # set by `follow`

    @property
    def seconds(self) -> float:
        """The wall-clock seconds of the training loop so far."""
        return (self._ended or time.perf_counter()) - self.began - self._paused

    @property
    def peak_memory_mb(self) -> float:
        """The run's peak of memory in MB (1e6 bytes)."""
        return max(self._peak_memory_mb, peak_memory_mb())

    def pause(self, do: Callable[[], None]) -> None:
        """Call `do` without counting its time to the run."""
        self._begin_pause()
        do()
        self._end_pause()

    def _begin_pause(self) -> None:
        """Keep the time, and the run's usage so far."""
        self._pause = time.perf_counter(), Usage.now().since(self._begin)

    def _end_pause(self) -> None:
        """Move the start of the run's usage so that the usage is the same as before the pause."""
        since, used = self._pause
        self._begin = Usage.now().since(used)
        self._paused += time.perf_counter() - since

    def follow(self, file: Path, of: int) -> None:
        """Write a line to a file for each step: past steps now, each later step when it is logged.

        Args:
            of: total number of steps of the run.
        """
        self._progress_file = file
        file.unlink(missing_ok=True)
        self._write_progress(self.steps, of)

    def _write_progress(self, steps: list[StepRecord], of: int) -> None:
        """Append steps to the file, ignoring errors, and exclude the time from the run's time."""
        if self._progress_file is None:
            return
        began = time.perf_counter()
        rows = [Progress(**step.model_dump(), total_steps=of).model_dump_json() for step in steps]
        with suppress(OSError), self._progress_file.open("a") as file:
            file.writelines(f"{row}\n" for row in rows)
        self._paused += time.perf_counter() - began

    def state(self) -> dict:
        """Return the state that Trainer saves in a checkpoint."""
        attributes = {
            "steps": [step.model_dump() for step in self.steps],
            "used": self._pause[1],  # up to the save, which is a pause
            "clocked": self._clocked,
            "waited": dict(self.clock.waited) if self.clock else {},
            "peak_memory_mb": self.peak_memory_mb,
        }
        return {"args": {}, "attributes": attributes}

    def restore(self, saved: dict) -> None:
        """Continue from the "attributes" of a saved `state()`."""
        self.steps = [StepRecord(**step) for step in saved["steps"]]
        self.used, self._peak_memory_mb = Usage(*saved["used"]), saved["peak_memory_mb"]
        self._paused = -self.steps[-1].seconds  # so that `seconds` goes on from the last step
        self._clocked = saved["clocked"]
        if self.clock:
            self.clock.seconds.update(saved["clocked"])
            self.clock.waited.update(saved["waited"])

    def on_train_begin(self, args, state, control, **kwargs):
        self._begin = Usage.now().since(self.used)
        self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self._ended = time.perf_counter()
        self.used = Usage.now().since(self._begin)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "grad_norm" not in logs:  # Trainer's summary at the end, which is not a step
            return
        self.steps.append(
            StepRecord(
                step=state.global_step,
                seconds=self.seconds,
                **select_metrics(logs),
                **self._phases(),
            )
        )
        self._write_progress(self.steps[-1:], state.max_steps)
        if control.should_save:  # the save that follows this log is not counted: see `on_save`
            self._begin_pause()

    def on_save(self, args, state, control, **kwargs):
        self._end_pause()

    def _phases(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call."""
        before, self._clocked = self._clocked, dict(self.clock.seconds) if self.clock else {}
        return {
            name: self._clocked.get(name, 0.0) - before.get(name, 0.0)
            for name in PHASES
            if self.clock
        }


class Snapshots(TrainerCallback):
    """Saves `count` models during training, evenly spaced between the first and the last step.

    Args:
        folder: where step12/, step24/, ... are created.
        save: saves the present model to a folder.
        recorder: excludes the time of saving from the run's time.
    """

    def __init__(
        self, count: int, folder: Path, save: Callable[[str], None], recorder: StepRecorder
    ):
        self._count, self._folder, self._save, self._recorder = count, folder, save, recorder
        self._at: set[int] = set()  # the steps after which a model is saved

    def on_train_begin(self, args, state, control, **kwargs):
        last, parts = state.max_steps, self._count + 1
        # The model after the last step is saved as the run's result.
        self._at = {round(last * part / parts) for part in range(1, parts)} - {last}

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step in self._at:
            folder = str(self._folder / f"step{state.global_step}")
            self._recorder.pause(lambda: self._save(folder))
