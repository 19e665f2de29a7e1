"""Reports the metrics of a training run while it runs.

Callbacks of transformers report to TensorBoard, trackio or W&B; `LiveMeans` reports to `dvc exp
show`. The time that reporting takes is not counted in the run's runtime, and reporting does not
change the run's random numbers.
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
from rapid.config.params import LIVE_FOLDER_VARIABLE, REPORT_VARIABLE
from rapid.training.recorder import StepRecorder
from rapid.training.trl.saving_trainer import preserve_random_states

LOGS = Path("logs")  # TensorBoard's and W&B's files; trackio's are in TRACKIO_DIR
PROJECT = "rapid"  # the project's name in W&B and trackio


class ReportingCallback(TrainerCallback):
    """Forwards a trainer's events to reporting callbacks.

    The states of random generators are restored after each call. A callback that raises an
    exception is removed, so that a failing service does not end the run.

    Args:
        callbacks: the reporting callbacks.
        recorder: records the run's steps, and is paused during the calls. Add the recorder to the
            trainer after this callback, so that the first step begins after the calls of
            `on_train_begin`.
    """

    def __init__(self, callbacks: list[TrainerCallback], recorder: StepRecorder):
        self._callbacks, self._recorder = callbacks, recorder

    def on_train_begin(self, *args, **kwargs):  # the recorder's clock has not started yet
        self._forward_event("on_train_begin", *args, **kwargs)

    def on_log(self, *args, **kwargs):
        self._recorder.pause(lambda: self._forward_event("on_log", *args, **kwargs))

    def on_train_end(self, *args, **kwargs):
        self._recorder.pause(lambda: self._forward_event("on_train_end", *args, **kwargs))

    def _forward_event(self, event: str, *args, **kwargs) -> None:
        """Call each reporting callback's method for this event."""
        with preserve_random_states():
            for callback in [*self._callbacks]:
                try:
                    getattr(callback, event)(*args, **kwargs)
                except Exception as error:  # the service is down, the disk is full, ...
                    self._callbacks.remove(callback)
                    print(
                        f"{type(callback).__name__} failed, and the run goes on without "
                        f"it: {error!r}"
                    )


class TensorBoardEvents(TensorBoardCallback):
    """Writes TensorBoard's events.

    When a run resumes from a checkpoint, the events of steps that will be repeated are deleted.

    Args:
        folder: folder of the files with events.
        problems: description of the training problems, shown on TensorBoard's page of texts.
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


class WandbEvents(WandbCallback):
    """Reports to W&B, and finishes W&B's run at the end of training.

    W&B normally finishes a run in an exit handler of Python. Jobs that the fork server
    (`rapid.processes.fork_server`) forks end with os._exit, which calls no exit handlers.
    """

    @override
    def on_train_end(self, *args, **kwargs):
        super().on_train_end(*args, **kwargs)
        self._wandb.finish()


class LiveMeans(TrainerCallback):
    """Writes metrics.json for `dvc exp show`: means over runs that differ only in their seeds.

    Each run contributes the `COMPARED` metrics of its latest step. When all runs have ended, the
    report overwrites the file.

    Args:
        runs: the folder that contains the folders of the seeds' runs.
        spec: the spec of one of the runs; ended runs with another spec are left out.
        problems: short description of the training problems.
    """

    def __init__(self, runs: Path, spec: Spec, problems: str):
        self._problems = problems
        self._runs, self._spec = runs, _without_seed(spec.model_dump(mode="json"))

    def on_log(self, *args, **kwargs):
        with suppress(OSError):  # another seed's job may delete its files; the disk may be full
            last_steps = [
                steps[-1] for run in self._runs.glob("seed*") if (steps := self._read_steps(run))
            ]
            figures: dict[str, float | str] = {"problems": self._problems}
            for name in ("step", "seconds", *COMPARED):
                values = [
                    value for step in last_steps if (value := getattr(step, name)) is not None
                ]
                if values:
                    figures["runtime" if name == "seconds" else name] = fmean(values)
            write_json(Path(EXPERIMENT_REPORT, "metrics.json"), figures)

    def _read_steps(self, run: Path) -> Sequence[StepRecord]:
        """Return the steps of a run that is under way, or has ended with the same spec."""
        with suppress(BadFile):  # jobs that read the file report the damage
            if steps := read_progress(run):
                return steps
            ended = Manifest.read(run)
            if ended and _without_seed(ended.spec) == self._spec:
                return read_rows(run / "steps.jsonl", StepRecord)
        return []


def _without_seed(spec: dict) -> dict:
    """Return a run's spec with the seed replaced by None."""
    return spec | {"run": spec["run"] | {"seed": None}}


def build_report_callbacks(
    folder: Path, spec: Spec, source: ProblemSource, recorder: StepRecorder, is_main: bool
) -> list[TrainerCallback]:
    """Build the callbacks that report to the service in RAPID_REPORT_TO and to `dvc exp show`.

    A run reports to `dvc exp show` if RAPID_LIVE is the folder that contains the run.

    Args:
        folder: the run's folder.
        spec: the run's spec.
        source: where the training problems come from.
        recorder: see `ReportingCallback`.
        is_main: whether this is the main process of the job, the only one that reports.

    Returns:
        The callbacks; an empty list if there is nothing to report to.
    """
    callbacks: list[TrainerCallback] = []
    with preserve_random_states():
        if os.environ.get(LIVE_FOLDER_VARIABLE) == str(folder.parent) and is_main:
            callbacks.append(LiveMeans(folder.parent, spec, source.label))
        match os.environ.get(REPORT_VARIABLE) if is_main else None:
            case "tensorboard":
                callbacks.append(
                    TensorBoardEvents(LOGS / "tensorboard" / folder, describe_sources([source]))
                )
            case "trackio":
                callbacks.append(TrackioCallback())
            case "wandb":
                os.environ |= {"WANDB_PROJECT": PROJECT, "WANDB_DIR": str(LOGS)} | os.environ
                callbacks.append(WandbEvents())
    return [ReportingCallback(callbacks, recorder)] if callbacks else []
