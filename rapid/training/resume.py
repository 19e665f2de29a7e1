"""How a run of the pipeline goes on after it was killed.

Until a run has ended, its folder has checkpoints/. In it are

1. `lock`, which the process that trains holds (`rapid.resources.leases`);
2. a folder named by a digest of all that the run's result depends on, so that nothing else is gone
   on from. It has Trainer's checkpoints, the last two, attempt.json, and progress.jsonl for those
   who watch.
"""

import hashlib
import json
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from accelerate.utils import broadcast_object_list
from pydantic import Field
from transformers import TrainerCallback
from transformers.trainer_callback import TrainerState

from rapid.artifacts.code import Spec
from rapid.artifacts.files import Record, write_json
from rapid.artifacts.manifests import versions
from rapid.artifacts.runs import PROGRESS, shown
from rapid.training.recorder import StepRecorder
from rapid.training.trl.saving import TRAINER_STATE, SavingTrainer, newest

ATTEMPT = "attempt.json"
SIGNALS = signal.SIGTERM, signal.SIGINT


class Attempt(Record):
    """attempt.json: a process that works on a run."""

    interrupted: int = Field(0, description="attempts before this one")
    lost: float = Field(0.0, description="seconds of steps of theirs that are done again")

    @classmethod
    def after(cls, folder: Path, seconds: float) -> "Attempt":
        """Return the attempt that goes on from so many seconds of training.

        The steps that the one before has shown say how far it had come.
        """
        try:
            last = cls.model_validate_json((folder / ATTEMPT).read_bytes())
        except (OSError, ValueError):
            return cls()
        lost = max([step.seconds - seconds for step in shown(folder / PROGRESS)], default=0.0)
        return cls(interrupted=last.interrupted + 1, lost=last.lost + max(0.0, lost))


def place(folder: Path, spec: Spec, inputs: dict[str, str], main: bool) -> Path:
    """Return where a run's checkpoints belong; those of another run in its folder are deleted.

    Args:
        folder: checkpoints/ in the run's folder.
        inputs: digests of what the run reads.
        main: whether this process writes files.
    """
    depends = [spec.model_dump(mode="json"), inputs, versions()]
    own = folder / hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:16]
    for other in folder.glob("*/") if main else ():
        if other != own:
            print(f"{folder.parent}: what was saved is of other parameters, inputs or versions: "
                  "deleted", file=sys.stderr)  # fmt: skip
            shutil.rmtree(other)
    return own


class Stopped(Exception):
    """The process was told to end, in the middle of a step."""


class ResumableRun(TrainerCallback):
    """Saves where a run is every so many seconds, and when the process is told to end.

    A process by itself stops at once, and saves what was before the step that it was in. Several
    stop together, after a step. Nothing is saved after the last step, since then the run ends.

    Args:
        trainer: its `output_dir` is where checkpoints go.
        recorder: the time that saving takes is not the run's.
        seconds: between the end of a save and the next one.
        main: whether this process writes files.
    """

    def __init__(self, trainer: SavingTrainer, recorder: StepRecorder, seconds: float, main: bool):
        self.attempt = Attempt()
        self._trainer, self._recorder, self._seconds, self._main = trainer, recorder, seconds, main
        self._folder = Path(trainer.args.output_dir or ".")
        self._signal = 0  # which one told this process to end
        self._stops_at_once = False
        self._since = 0.0
        self._saved = 0  # step
        self.checkpoint = self._find()  # to go on from, if there is one
        trainer.add_callback(self)

    def _find(self) -> Path | None:
        found = newest(self._folder, discard=True) if self._main else None
        [found] = broadcast_object_list([found])
        if found:
            state = TrainerState.load_from_json(str(found / TRAINER_STATE))
            name = type(self._recorder).__name__
            self._recorder.restore(state.stateful_callbacks[name]["attributes"])
            self._saved = self._recorder.steps[-1].step
            self._say(f"{found}: going on from here")
        return found

    def train(self) -> None:
        """Train to the end.

        Raises:
            SystemExit: the process was told to end; the same command goes on.
        """
        trainer, before = self._trainer, {one: signal.signal(one, self._told) for one in SIGNALS}
        try:
            trainer.train(self.checkpoint and str(self.checkpoint))
        except Stopped:
            if trainer.state.global_step > self._saved:
                self._recorder.pause(lambda: trainer._save_checkpoint(trainer.model, None))
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
        step, last = trainer.state.global_step, trainer.state.max_steps
        if self._signal and step < last:
            name = signal.Signals(self._signal).name
            self._say(f"{name}: ended after step {step} of {last}. The same command goes on there")
            raise SystemExit(128 + self._signal)

    def _say(self, line: str) -> None:
        if self._main:
            print(line, file=sys.stderr)

    def _told(self, number: int, frame) -> None:
        self._signal = number
        if self._stops_at_once:
            self._stops_at_once = False
            raise Stopped

    def on_train_begin(self, args, state, control, **kwargs):
        self._since = time.monotonic()
        if self._main:
            steps = self._recorder.steps
            seconds = steps[-1].seconds if steps else 0.0
            self.attempt = Attempt.after(self._folder, seconds)
            write_json(self._folder / ATTEMPT, self.attempt)
            self._recorder.follow(self._folder / PROGRESS, state.max_steps)

    def on_step_begin(self, args, state, control, **kwargs):
        if args.world_size == 1:
            self._stops_at_once = True
            if self._signal:
                self._told(self._signal, None)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self._stops_at_once = False

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == state.max_steps:
            return
        due = self._main and time.monotonic() - self._since >= self._seconds
        own = torch.tensor([[due, self._signal]], device=args.device)
        any_due, told = self._trainer.accelerator.gather(own).amax(0).tolist()
        self._signal = self._signal or told  # one that came meanwhile is for the next step
        control.should_save |= bool(any_due or told)
        control.should_training_stop |= bool(told)

    def on_save(self, args, state, control, **kwargs):
        self._since, self._saved = time.monotonic(), state.global_step
