"""Checkpoints that are whole or not there, and taken between inference batches."""

import json
import math
import os
import random
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import numpy
import torch
from transformers import Trainer
from transformers.trainer_utils import SaveStrategy, rotate_checkpoints
from typing_extensions import override

from rapid.artifacts.files import sha256_file, write_json
from rapid.training.refusals import refuse_weights

DIGESTS = "digests.json"  # in a checkpoint: the SHA-256 of its other files
PARTIAL = "partial"  # beside checkpoints: one that is being written, or was when its run was killed
TRAINER_STATE = "trainer_state.json"
CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")


def digest_files(checkpoint: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a checkpoint but `digests.json`, by its path in there."""
    paths = (path for path in sorted(checkpoint.rglob("*")) if path.is_file())
    digests = {path.relative_to(checkpoint).as_posix(): sha256_file(path) for path in paths}
    digests.pop(DIGESTS, None)
    return digests


def describe_damage(checkpoint: Path) -> str:
    """Return which files of a checkpoint are not as they were saved; "" where it is whole."""
    try:
        saved = json.loads((checkpoint / DIGESTS).read_text(encoding="utf-8"))
        changed = saved.items() ^ digest_files(checkpoint).items()
    except (OSError, ValueError, AttributeError):
        return f"{DIGESTS} is missing or cannot be read"
    return ", ".join(sorted({name for name, _ in changed}))


def newest_checkpoint(folder: Path, discard: bool = False) -> Path | None:
    """Return the newest whole checkpoint of a folder, and print what is wrong with newer ones.

    Args:
        discard: delete those.
    """
    names = [(CHECKPOINT_NAME.fullmatch(path.name), path) for path in folder.glob("checkpoint-*")]
    by_step = sorted(((int(name[1]), path) for name, path in names if name), reverse=True)
    for _, checkpoint in by_step:
        if not (damage := describe_damage(checkpoint)):
            return checkpoint
        print(f"{checkpoint} is damaged, and skipped: {damage}", file=sys.stderr)
        if discard:
            shutil.rmtree(checkpoint)
    return None


class SavingTrainer(Trainer):
    """A Trainer that saves atomically, and only once an inference batch is used up.

    What falls due earlier waits, whoever asked for it: a save, a stop that comes with it, and an
    evaluation that chooses the best checkpoint. Trainers call `begin_step` in `training_step`.
    """

    _due: frozenset[str] = frozenset()  # the fields of `control` that wait
    _waits = False  # whether a save that is asked for now has to wait
    _saved_step = -1
    _epoch_start = 0  # the step before the epoch's first

    def has_pending_steps(self) -> bool:
        """Return whether steps are left to be taken on what was sampled last."""
        return False

    def begin_step(self) -> None:
        """Let saves wait until the step has ended."""
        self._waits = True

    @override
    def train(self, resume_from_checkpoint=None, *arguments, **named):
        """Resume from the newest whole checkpoint where True is given; Trainer takes the last.

        With `push_to_hub` it is the last, since those have no digests.

        Raises:
            ValueError: there is none, or the given one is damaged.
        """
        self._due, self._waits, self._saved_step = frozenset(), False, -1
        if resume_from_checkpoint is True and not self.args.push_to_hub:
            checkpoint = newest_checkpoint(Path(self.args.output_dir or "."))
            if checkpoint is None:
                raise ValueError(f"{self.args.output_dir} has no undamaged checkpoint")
            resume_from_checkpoint = str(checkpoint)
        elif isinstance(resume_from_checkpoint, (str, Path)):
            checkpoint = Path(resume_from_checkpoint)
            if (checkpoint / DIGESTS).exists() and (damage := describe_damage(checkpoint)):
                raise ValueError(f"{checkpoint} is damaged: {damage}")
        return super().train(resume_from_checkpoint, *arguments, **named)

    @override
    def _run_epoch(self, *args, **named):
        self._epoch_start = self.state.global_step
        return super()._run_epoch(*args, **named)

    @override
    def _maybe_log_save_evaluate(self, *args, **named):
        """Log, evaluate and save, unless it has to wait. Trainer does what `control` says."""
        self._waits = self._is_within_batch()
        self._postpone()
        is_due = self.control.should_save
        if is_due or self.control.should_evaluate:
            refuse_weights(self.model, self.args, self.state)
        if self._waits:
            with patch.object(
                self.callback_handler, "on_save", lambda args, state, control: control
            ):
                super()._maybe_log_save_evaluate(*args, **named)
            self._postpone()  # what callbacks of logs and evaluations asked for
            return
        super()._maybe_log_save_evaluate(*args, **named)
        if is_due and self._saved_step != self.state.global_step:
            # An evaluation that found no better checkpoint has taken it back.
            self._save_checkpoint(self.model, None)
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)

    def _is_within_batch(self) -> bool:
        """Return whether the run will take further steps on what was sampled last."""
        state = self.state
        epochs = math.floor(state.epoch) + 1 if self.control.should_epoch_stop else state.epoch
        goes_on = state.global_step < state.max_steps and epochs < state.num_train_epochs
        is_empty = state.global_step == self._epoch_start  # Trainer stops after such an epoch
        return self.has_pending_steps() and goes_on and not is_empty

    def _postpone(self) -> None:
        """Take from `control` what has to wait, or put back what has waited."""
        control, args = self.control, self.args
        chooses_best = args.save_strategy != SaveStrategy.NO and args.metric_for_best_model
        due = set(self._due)
        if control.should_save:
            due.add("should_save")
        if control.should_evaluate and chooses_best:
            due.add("should_evaluate")
        if control.should_training_stop and due:
            due.add("should_training_stop")
        for name in due:
            setattr(control, name, not self._waits)
        self._due = frozenset(due if self._waits else ())

    @override
    def _save_checkpoint(self, model, trial):
        """Write a checkpoint beside its place, bring it to the disk, then give it its name.

        Trainer writes in place: what is there of one when a run is killed looks like a whole one.
        It also deletes those that are older by the clock. Where it sends checkpoints to the hub it
        reads them while training goes on, so they stay where they are written.
        """
        if self._waits:  # a callback calls it
            self._due |= {"should_save"}
            return None
        self._saved_step = self.state.global_step
        if self.args.push_to_hub:
            return super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial))
        partial, name = folder / PARTIAL, f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            shutil.rmtree(partial, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        with patch.object(self, "_get_output_dir", lambda trial=None: str(partial)):
            super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if is_best := self.state.best_model_checkpoint == str(partial / name):
            self.state.best_model_checkpoint = str(folder / name)
        if self.args.should_save:
            if is_best:
                self.state.save_to_json(str(partial / name / TRAINER_STATE))
            _publish(partial / name, folder / name)
            limit, best = self.args.save_total_limit, self.state.best_model_checkpoint
            rotate_checkpoints(str(folder), limit, best)
        self.accelerator.wait_for_everyone()  # all of them load the best one by its name


def _publish(written: Path, checkpoint: Path) -> None:
    """Give a checkpoint its name, once all of it has reached the disk."""
    write_json(written / DIGESTS, digest_files(written))
    for path in (*written.rglob("*"), written):
        _flush(path)
    shutil.rmtree(checkpoint, ignore_errors=True)  # of the same step, before the run was resumed
    written.rename(checkpoint)
    written.parent.rmdir()
    for folder in checkpoint.parent.glob("checkpoint-*"):
        with suppress(OSError):  # it is not empty
            folder.rmdir()  # made by `enable_jit_checkpoint` for a save that had to wait
    _flush(checkpoint.parent)


def _flush(path: Path) -> None:
    """Bring a file, or a folder's list of files, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def same_random_states() -> Iterator[None]:
    """Undo what happens within to the generators of Python, NumPy and torch."""
    python, arrays, cpu = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        random.setstate(python)
        numpy.random.set_state(arrays)
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda)
