"""Callbacks that record each optimizer step of a run, and that save models during the run.

The recorder takes the metrics that are declared in `rapid.artifacts.metrics` from the trainer's
logs. So a new metric is added there, and where its value is computed: in
`rapid.training.batch_statistics` or in an algorithm's loss.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from rapid.artifacts.metrics import select_metrics
from rapid.artifacts.runs import PHASES, Progress, StepRecord
from rapid.resources.memory import measure_peak_memory_mb
from rapid.training.clock import PhaseClock
from rapid.training.usage import Usage


class StepRecorder(TrainerCallback, ExportableState):
    """Collects a `StepRecord` per optimizer step from the logs of a trainer that logs each step.

    Checkpoints contain `state()`, so that a resumed run continues all counts from its last step.

    Attributes:
        steps: the records so far.
        usage: CPU time, and time lost to other processes; complete when training has ended.
        clock: the trainer's clock of phases, if it has one; set by the caller.
    """

    def __init__(self):
        self.steps: list[StepRecord] = []
        self.began = 0.0  # on the clock of time.perf_counter
        self.usage = Usage(cpu=0, waited=0, stolen=0)
        self.clock: PhaseClock | None = None
        self._phase_seconds: dict[str, float] = {}  # the clock's `seconds` at the last logged step
        self._paused = 0.0  # seconds of all pauses, minus the run's seconds before a resume
        # Time at which the last pause began, and the usage of the run up to this time.
        self._last_pause = 0.0, self.usage
        self._ended: float | None = None  # end of training, on the clock of `began`
        # The process's usage before the run and in pauses, minus the run's usage before a resume.
        self._outside_usage = self.usage
        self._peak_memory_mb = 0.0  # peak before the run was resumed
        self._progress_file: Path | None = None  # set by `write_progress_to`

    @property
    def seconds(self) -> float:
        """The wall-clock seconds of the training loop so far, without pauses and saves."""
        return (self._ended or time.perf_counter()) - self.began - self._paused

    @property
    def peak_memory_mb(self) -> float:
        """The run's peak of memory in MB (1e6 bytes)."""
        return max(self._peak_memory_mb, measure_peak_memory_mb())

    def pause(self, function: Callable[[], None]) -> None:
        """Call a function without counting its time as the run's."""
        self._begin_pause()
        function()
        self._end_pause()

    def _begin_pause(self) -> None:
        """Store the time and the usage of the run so far."""
        self._last_pause = time.perf_counter(), Usage.now().since(self._outside_usage)

    def _end_pause(self) -> None:
        """Exclude time and usage since `_begin_pause` from those of the run."""
        began, usage = self._last_pause
        self._outside_usage = Usage.now().since(usage)
        self._paused += time.perf_counter() - began

    def write_progress_to(self, file: Path, total_steps: int) -> None:
        """Write a line per step to a new file: past steps now, later ones when they are logged.

        An existing file is replaced. `total_steps` is the number of steps of the whole run.
        """
        self._progress_file = file
        file.unlink(missing_ok=True)
        self._write_progress(self.steps, total_steps)

    def _write_progress(self, steps: list[StepRecord], total_steps: int) -> None:
        """Append steps to the progress file without counting the time; ignore errors."""
        if self._progress_file is None:
            return
        began = time.perf_counter()
        rows = [Progress(**step.model_dump(), total_steps=total_steps) for step in steps]
        with suppress(OSError), self._progress_file.open("a") as file:
            file.writelines(f"{row.model_dump_json()}\n" for row in rows)
        self._paused += time.perf_counter() - began

    def state(self) -> dict:
        """Return the state that Trainer saves in a checkpoint."""
        attributes = {
            "steps": [step.model_dump() for step in self.steps],
            "used": self._last_pause[1],  # up to the save, which is a pause
            "clocked": self._phase_seconds,
            "waited": dict(self.clock.waited) if self.clock else {},
            "peak_memory_mb": self.peak_memory_mb,
        }
        return {"args": {}, "attributes": attributes}

    def restore(self, saved: dict) -> None:
        """Continue from the "attributes" of a saved `state()`."""
        self.steps = [StepRecord(**step) for step in saved["steps"]]
        self.usage, self._peak_memory_mb = Usage(*saved["used"]), saved["peak_memory_mb"]
        self._paused = -self.steps[-1].seconds  # so that `seconds` goes on from the last step
        self._phase_seconds = saved["clocked"]
        if self.clock:
            self.clock.seconds.update(saved["clocked"])
            self.clock.waited.update(saved["waited"])

    def on_train_begin(self, args, state, control, **kwargs):
        self._outside_usage = Usage.now().since(self.usage)
        self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self._ended = time.perf_counter()
        self.usage = Usage.now().since(self._outside_usage)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "grad_norm" not in logs:  # a log of no step, such as Trainer's summary at the end
            return
        self.steps.append(
            StepRecord(
                step=state.global_step,
                seconds=self.seconds,
                **select_metrics(logs),
                **self._compute_phase_seconds(),
            )
        )
        self._write_progress(self.steps[-1:], state.max_steps)
        if control.should_save:  # do not count the time of the save that follows, until `on_save`
            self._begin_pause()

    def on_save(self, args, state, control, **kwargs):
        self._end_pause()

    def _compute_phase_seconds(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call."""
        if self.clock is None:
            return {}
        before, self._phase_seconds = self._phase_seconds, dict(self.clock.seconds)
        return {name: self._phase_seconds.get(name, 0.0) - before.get(name, 0.0) for name in PHASES}


class Snapshots(TrainerCallback):
    """Saves `count` models during training, which divide the run into `count` + 1 equal parts.

    There are fewer if the run has too few steps.

    Args:
        folder: where step12/, step24/, ... are created.
        save: saves the present model to a folder.
        recorder: excludes the time of saving from the run's time.
    """

    def __init__(
        self, count: int, folder: Path, save: Callable[[str], None], recorder: StepRecorder
    ):
        self._count, self._folder, self._save, self._recorder = count, folder, save, recorder
        self._saved_steps: set[int] = set()  # the steps after which a model is saved

    def on_train_begin(self, args, state, control, **kwargs):
        last, intervals = state.max_steps, self._count + 1
        # The model after the last step is saved as the run's result.
        steps = {round(last * number / intervals) for number in range(1, intervals)}
        self._saved_steps = steps - {last}

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step in self._saved_steps:
            folder = str(self._folder / f"step{state.global_step}")
            self._recorder.pause(lambda: self._save(folder))
