"""Reports the metrics of a training run while it runs.

transformers' callbacks report to TensorBoard, trackio or W&B; `LiveMeans` reports to `dvc exp
show`. Reporting is not counted as the run's time, and does not change its random numbers.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean

from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback, TrackioCallback, WandbCallback
from typing_extensions import override

from rapid.artifacts.code import Spec
from rapid.artifacts.files import BadFile, write_json
from rapid.artifacts.layout import EXPERIMENT_REPORT
from rapid.artifacts.manifests import Manifest, read_rows
from rapid.artifacts.metrics import COMPARED
from rapid.artifacts.runs import StepRecord, read_progress
from rapid.benchmarks.problem_source import ProblemSource, describe_sources
from rapid.config.params import LIVE_VARIABLE, REPORT_VARIABLE
from rapid.training.recorder import StepRecorder
from rapid.training.trl.saving_trainer import same_random_states

LOGS = Path("logs")  # TensorBoard's and W&B's files; trackio's are in TRACKIO_DIR
PROJECT = "rapid"


class ReportingCallback(TrainerCallback):
    """Forwards events to reporting callbacks. It has to be added before the recorder.

    Args:
        callbacks: the callbacks; states of random generators are restored after each call.
        recorder: its clock is paused during the calls.
    """

    def __init__(self, callbacks: list[TrainerCallback], recorder: StepRecorder):
        self._callbacks, self._recorder = callbacks, recorder

    def on_train_begin(self, *args, **kwargs):  # the recorder has yet to begin
        self._pass_on("on_train_begin", *args, **kwargs)

    def on_log(self, *args, **kwargs):
        self._recorder.pause(lambda: self._pass_on("on_log", *args, **kwargs))

    def on_train_end(self, *args, **kwargs):
        self._recorder.pause(lambda: self._pass_on("on_train_end", *args, **kwargs))

    def _pass_on(self, event: str, *args, **kwargs) -> None:
        with same_random_states():
            for callback in [*self._callbacks]:
                try:
                    getattr(callback, event)(*args, **kwargs)
                except Exception as error:  # no service, a full disk: not the run's
                    self._callbacks.remove(callback)
                    print(
                        f"{type(callback).__name__} failed, and the run goes on without "
                        f"it: {error!r}"
                    )


class TensorBoardEvents(TensorBoardCallback):
    """Writes TensorBoard's events. Events of later steps from before a resume are purged.

    Args:
        problems: description of the training problems, for TensorBoard's texts.
    """

    def __init__(self, folder: Path, problems: str):
        super().__init__()
        self.logging_dir = str(folder)
        self._problems = problems

    @override
    def on_train_begin(self, args, state, control, **kwargs):
        next_step = state.global_step + 1
        self.tb_writer = self._SummaryWriter(self.logging_dir, purge_step=next_step)
        self.tb_writer.add_text("problems", self._problems)
        super().on_train_begin(args, state, control, **kwargs)


class Wandb(WandbCallback):
    """Reports to W&B, and finishes its run with training.

    W&B finishes a run when Python exits normally, which a job of the fork server does not do.
    """

    @override
    def on_train_end(self, *args, **kwargs):
        super().on_train_end(*args, **kwargs)
        self._wandb.finish()


class LiveMeans(TrainerCallback):
    """Writes means over the seeds of the runs that `dvc exp show` compares.

    A seed's figures are those of its latest step. The finished report replaces them.

    Args:
        runs: the folder of the seeds' folders.
        spec: the spec of one of the runs.
        problems: short description of the training problems.
    """

    def __init__(self, runs: Path, spec: Spec, problems: str):
        self._problems = problems
        self._runs, self._spec = runs, _without_seed(spec.model_dump(mode="json"))

    def on_log(self, *args, **kwargs):
        with suppress(OSError):  # another seed's job begins just now, or the disk is full
            last = [
                steps[-1] for run in self._runs.glob("seed*") if (steps := self._read_steps(run))
            ]
            figures: dict[str, float | str] = {"problems": self._problems}
            for name in ("step", "seconds", *COMPARED):
                values = [value for step in last if (value := getattr(step, name)) is not None]
                if values:
                    figures["runtime" if name == "seconds" else name] = fmean(values)
            write_json(Path(EXPERIMENT_REPORT, "metrics.json"), figures)

    def _read_steps(self, run: Path) -> Sequence[StepRecord]:
        """Return the steps of a run that is under way, or has ended with the same spec."""
        with suppress(BadFile):  # a damaged file is reported by its readers
            if steps := read_progress(run):
                return steps
            ended = Manifest.read(run)
            if ended and _without_seed(ended.spec) == self._spec:
                return read_rows(run / "steps.jsonl", StepRecord)
        return []


def _without_seed(spec: dict) -> dict:
    return spec | {"run": spec["run"] | {"seed": None}}


def build_report_callbacks(
    folder: Path, spec: Spec, problems: ProblemSource, recorder: StepRecorder, main: bool
) -> list[TrainerCallback]:
    """Build the callback for the services that environment variables choose; [] for none.

    Args:
        folder: the run's folder.
        spec: the run's spec.
        problems: the source of the training problems.
        main: whether this process reports.
    """
    callbacks: list[TrainerCallback] = []
    with same_random_states():
        if os.environ.get(LIVE_VARIABLE) == str(folder.parent) and main:
            callbacks.append(LiveMeans(folder.parent, spec, problems.label))
        match os.environ.get(REPORT_VARIABLE) if main else None:
            case "tensorboard":
                callbacks.append(
                    TensorBoardEvents(LOGS / "tensorboard" / folder, describe_sources([problems]))
                )
            case "trackio":
                callbacks.append(TrackioCallback())
            case "wandb":
                os.environ |= {"WANDB_PROJECT": PROJECT, "WANDB_DIR": str(LOGS)} | os.environ
                callbacks.append(Wandb())
    return [ReportingCallback(callbacks, recorder)] if callbacks else []
