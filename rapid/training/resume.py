"""Saves a training run of the pipeline, and resumes it after it was killed.

Until a run has ended, its folder has a subfolder checkpoints/ with

1. `lock`, a file lock that the training process holds (`rapid.resources.leases`);
2. a folder named by a digest of everything that the run's result depends on, so that a changed run
   does not resume from it. It contains Trainer's last two checkpoints, attempt.json (how often the
   run was interrupted), progress.jsonl (a line per step, for `rapid watch`), and, with
   `precision: auto`, the file `precision` with the precision that was chosen.
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
from rapid.artifacts.manifests import get_versions
from rapid.artifacts.runs import PROGRESS, read_progress_file
from rapid.training.recorder import StepRecorder
from rapid.training.trl.saving_trainer import TRAINER_STATE, SavingTrainer, find_newest_checkpoint

ATTEMPT = "attempt.json"
SIGNALS = signal.SIGTERM, signal.SIGINT
# Seconds after the first signal during which further signals are ignored, because processes often
# get the same signal twice. A later signal ends the process at once.
REPEATED_AFTER = 10.0


class Attempt(Record):
    """Contents of attempt.json: the number of earlier attempts at a run, and the time they lost."""

    interrupted: int = Field(0, description="number of earlier attempts")
    lost: float = Field(
        0.0, description="seconds of earlier attempts' steps that have to be repeated"
    )

    @classmethod
    def from_previous(cls, folder: Path, seconds: float) -> "Attempt":
        """Return the attempt after the one that a folder records, or the first if it records none.

        Args:
            seconds: training time up to the checkpoint that is resumed. Later steps of the previous
                attempt, which progress.jsonl lists, are lost.
        """
        try:
            previous = cls.model_validate_json((folder / ATTEMPT).read_bytes())
        except (OSError, ValueError):
            return cls()
        lost = max(
            [step.seconds - seconds for step in read_progress_file(folder / PROGRESS)], default=0.0
        )
        return cls(interrupted=previous.interrupted + 1, lost=previous.lost + max(0.0, lost))


def prepare_checkpoint_dir(folder: Path, spec: Spec, inputs: dict[str, str], main: bool) -> Path:
    """Return the folder of a run's checkpoints; delete those with other dependencies.

    Args:
        folder: checkpoints/ in the run's folder.
        spec: the run's parameters, and the digest of its code.
        inputs: the SHA-256 of each file that the run reads.
        main: whether this is the process that writes files.
    """
    dependencies = [spec.model_dump(mode="json"), inputs, get_versions()]
    checkpoint_dir = folder / hashlib.sha256(json.dumps(dependencies).encode()).hexdigest()[:16]
    for path in folder.glob("*/") if main else ():
        if path != checkpoint_dir:
            message = "deleting checkpoints of other parameters, inputs or versions"
            print(f"{folder.parent}: {message}", file=sys.stderr)
            shutil.rmtree(path)
    return checkpoint_dir


class ResumableRun(TrainerCallback):
    """Saves a run at intervals, and when SIGTERM or SIGINT ends it.

    A save waits for the end of the optimizer steps on the present inference batch (the completions
    sampled at once), and all processes of a run save together. A second signal, more than
    `REPEATED_AFTER` seconds after the first, ends a process that hangs, without a save. After the
    last step nothing is saved, since the run ends there.

    Args:
        trainer: writes checkpoints to its `output_dir`.
        recorder: excludes the time of saving from the run's time.
        seconds: time between the end of a save and the next save.
        main: whether this is the process that writes files.

    Attributes:
        attempt: the present attempt, written to attempt.json. Counted in the main process only.
        checkpoint: the checkpoint from which the run is resumed, or None.
    """

    def __init__(self, trainer: SavingTrainer, recorder: StepRecorder, seconds: float, main: bool):
        self.attempt = Attempt()
        self._trainer, self._recorder, self._seconds, self._main = trainer, recorder, seconds, main
        self._folder = Path(trainer.args.output_dir or ".")
        self._signal, self._signal_time = 0, 0.0  # number and time of the first signal
        self._since = 0.0  # time of the last save, or of the start of training
        self.checkpoint = self._find_checkpoint()
        trainer.add_callback(self)

    def _find_checkpoint(self) -> Path | None:
        newest = find_newest_checkpoint(self._folder, delete_damaged=True) if self._main else None
        [checkpoint] = broadcast_object_list([newest])
        if checkpoint:
            state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))
            name = type(self._recorder).__name__  # Trainer saves states of callbacks by class name
            self._recorder.restore(state.stateful_callbacks[name]["attributes"])
            self._print(f"{checkpoint}: resuming from here")
        return checkpoint

    def train(self) -> None:
        """Train to the end, from the checkpoint if there is one.

        Raises:
            SystemExit: a signal ended the run early. The same command resumes it.
        """
        trainer = self._trainer
        handlers = {number: signal.signal(number, self._handle_signal) for number in SIGNALS}
        try:
            trainer.train(self.checkpoint and str(self.checkpoint))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        step, last = trainer.state.global_step, trainer.state.max_steps
        if self._signal and step < last:
            name = signal.Signals(self._signal).name
            self._print(
                f"{name}: ended after step {step} of {last}. To resume, run the same command again"
            )
            raise SystemExit(128 + self._signal)

    def _print(self, line: str) -> None:
        if self._main:
            print(line, file=sys.stderr)

    def _handle_signal(self, number: int, frame) -> None:
        if not self._signal:
            self._signal, self._signal_time = number, time.monotonic()
        elif time.monotonic() - self._signal_time > REPEATED_AFTER:
            raise SystemExit(128 + number)

    def on_train_begin(self, args, state, control, **kwargs):
        self._since = time.monotonic()
        if self._main:
            steps = self._recorder.steps
            seconds = steps[-1].seconds if steps else 0.0
            self.attempt = Attempt.from_previous(self._folder, seconds)
            write_json(self._folder / ATTEMPT, self.attempt)
            self._recorder.write_progress_to(self._folder / PROGRESS, state.max_steps)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == state.max_steps or self._trainer.has_pending_steps():
            return
        due = self._main and time.monotonic() - self._since >= self._seconds
        flags = torch.tensor([[due, self._signal]], device=args.device)
        any_due, number = self._trainer.accelerator.gather(flags).amax(0).tolist()
        # `number` is a signal that this or another process has received. If this process receives
        # one after `flags` was built, it takes effect at the end of the next inference batch.
        if number and not self._signal:
            self._handle_signal(number, None)
        control.should_save |= bool(any_due or number)
        control.should_training_stop |= bool(number)

    def on_save(self, args, state, control, **kwargs):
        self._since = time.monotonic()
