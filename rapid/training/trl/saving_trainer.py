"""Writes checkpoints atomically, and only between inference batches.

An inference batch is sampled at once and used for several optimizer steps. A checkpoint in between
would have to hold the completions that are not used yet.
"""

import json
import logging
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
from transformers.trainer_utils import SaveStrategy
from typing_extensions import override

from rapid.artifacts.files import sha256_file, write_json
from rapid.training.refusals import refuse_weights

logger = logging.getLogger(__name__)
DIGESTS = "digests.json"  # file in a checkpoint: the SHA-256 of each of its other files
PARTIAL = "partial"  # folder beside the checkpoints, in which the next one is being written
TRAINER_STATE = "trainer_state.json"
CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")


def digest_files(checkpoint: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a checkpoint except `digests.json`, by relative path."""
    paths = (path for path in sorted(checkpoint.rglob("*")) if path.is_file())
    digests = {path.relative_to(checkpoint).as_posix(): sha256_file(path) for path in paths}
    digests.pop(DIGESTS, None)
    return digests


def describe_damage(checkpoint: Path) -> str:
    """Return the names of missing or changed files of a checkpoint; "" if it is intact.

    Files that were added are no damage: callbacks may write into a checkpoint when it is saved.
    """
    try:
        saved = json.loads((checkpoint / DIGESTS).read_text(encoding="utf-8"))
        changed = saved.items() - digest_files(checkpoint).items()
    except (OSError, ValueError, AttributeError):
        saved = {}
    if not saved:
        return f"{DIGESTS} is missing or cannot be read"
    return ", ".join(sorted({name for name, _ in changed}))


def find_newest_checkpoint(folder: Path, delete_damaged: bool = False) -> Path | None:
    """Return the newest intact checkpoint of a folder, and print what is damaged in newer ones.

    With `delete_damaged` the newer ones are deleted.
    """
    for _, checkpoint in sorted(_list_checkpoints(folder), reverse=True):
        if not (damage := describe_damage(checkpoint)):
            return checkpoint
        action = "deleted" if delete_damaged else "skipped"
        print(f"{checkpoint} is {action}, because it is damaged: {damage}", file=sys.stderr)
        if delete_damaged:
            shutil.rmtree(checkpoint)
    return None


def _list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return the step and the path of each checkpoint in a folder, in any order."""
    matches = [(CHECKPOINT_NAME.fullmatch(path.name), path) for path in folder.glob("checkpoint-*")]
    return [(int(match[1]), path) for match, path in matches if match]


class SavingTrainer(Trainer):
    """A Trainer that saves atomically, and only when an inference batch is used up.

    A save that is requested earlier is postponed, and with it a stop of training and an evaluation
    that chooses the best checkpoint. Subclasses call `begin_step` in `training_step`.
    """

    _postponed_fields: frozenset[str] = frozenset()  # names of fields of Trainer's `control`
    _is_postponing = False  # whether a save that is requested now is postponed
    _saved_step = -1  # step of the last checkpoint
    _epoch_start = 0  # global_step at the beginning of the epoch

    def has_pending_steps(self) -> bool:
        """Return whether optimizer steps are left on the present inference batch."""
        return False

    def begin_step(self) -> None:
        """Postpone saves until the step has ended."""
        self._is_postponing = True

    @override
    def train(self, resume_from_checkpoint=None, *arguments, **kwargs):
        """Train; with `resume_from_checkpoint=True`, from the newest intact checkpoint.

        Trainer takes the newest checkpoint, intact or not. So does this method with `push_to_hub`,
        because checkpoints that are uploaded have no digests.

        A run from the beginning logs a warning if the output folder has checkpoints, because
        `resume_from_checkpoint=True` would choose them by their number of steps.

        Raises:
            ValueError: there is no intact checkpoint, or `resume_from_checkpoint` is damaged.
        """
        self._postponed_fields, self._is_postponing, self._saved_step = frozenset(), False, -1
        if resume_from_checkpoint is True and not self.args.push_to_hub:
            checkpoint = find_newest_checkpoint(Path(self.args.output_dir or "."))
            if checkpoint is None:
                raise ValueError(
                    f"{self.args.output_dir} has no intact checkpoint: to train from the beginning,"
                    " call train without resume_from_checkpoint"
                )
            resume_from_checkpoint = str(checkpoint)
        elif isinstance(resume_from_checkpoint, (str, Path)):
            checkpoint = Path(resume_from_checkpoint)
            if (checkpoint / DIGESTS).exists() and (damage := describe_damage(checkpoint)):
                raise ValueError(f"{checkpoint} is damaged: {damage}")
        elif not resume_from_checkpoint and self.is_world_process_zero():
            _warn_of_earlier_run(Path(self.args.output_dir or "."))
        return super().train(resume_from_checkpoint, *arguments, **kwargs)

    @override
    def _run_epoch(self, *args, **kwargs):
        """Run an epoch, and keep the step at which it begins for `_is_within_batch`."""
        self._epoch_start = self.state.global_step
        return super()._run_epoch(*args, **kwargs)

    @override
    def _maybe_log_save_evaluate(self, *args, **kwargs):
        """Log, evaluate and save as `control` says, but postpone saves within an inference batch.

        Trainer calls this after each optimizer step, and postpones nothing.
        """
        self._is_postponing = self._is_within_batch()
        self._postpone()
        is_due = self.control.should_save
        if is_due or self.control.should_evaluate:
            refuse_weights(self.model, self.args, self.state)  # raises if one is infinite or NaN
        if self._is_postponing:
            # Callbacks must not be told of a save that `_save_checkpoint` has postponed.
            with patch.object(
                self.callback_handler, "on_save", lambda args, state, control: control
            ):
                super()._maybe_log_save_evaluate(*args, **kwargs)
            self._postpone()  # saves that callbacks requested at the log or the evaluation
            return
        super()._maybe_log_save_evaluate(*args, **kwargs)
        if is_due and self._saved_step != self.state.global_step:
            # A callback requested this save. With save_strategy "best", Trainer has dropped it,
            # because the evaluation in this step gave no better result.
            self._save_checkpoint(self.model, None)
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)

    def _is_within_batch(self) -> bool:
        """Return whether the run will take further steps on the present inference batch."""
        state = self.state
        # Epochs that are over after this step: a callback may end the present one early.
        epochs = math.floor(state.epoch) + 1 if self.control.should_epoch_stop else state.epoch
        has_more_steps = state.global_step < state.max_steps and epochs < state.num_train_epochs
        # Trainer ends the run after an epoch in which no step was taken.
        is_empty_epoch = state.global_step == self._epoch_start
        return self.has_pending_steps() and has_more_steps and not is_empty_epoch

    def _postpone(self) -> None:
        """Clear the fields of `control` that are postponed, or set them when the wait is over."""
        control, args = self.control, self.args
        chooses_best = args.save_strategy != SaveStrategy.NO and args.metric_for_best_model
        due = set(self._postponed_fields)
        if control.should_save:
            due.add("should_save")
        if control.should_evaluate and chooses_best:
            due.add("should_evaluate")
        if control.should_training_stop and due:  # a stop waits only for a save or an evaluation
            due.add("should_training_stop")
        for name in due:
            setattr(control, name, not self._is_postponing)
        self._postponed_fields = frozenset(due if self._is_postponing else ())

    @override
    def _save_checkpoint(self, model, trial):
        """Write a checkpoint to the folder "partial", flush it to disk, and then rename it.

        Trainer writes to the final folder, so that a partial checkpoint of a killed run looks
        complete. It also deletes old checkpoints by modification time, which
        `delete_old_checkpoints` does not. With `push_to_hub` Trainer uploads a checkpoint while
        training goes on. Such a checkpoint must not be renamed, so that Trainer's own method is
        used.
        """
        if self._is_postponing:  # a callback requests a save while the inference batch is in use
            self._postponed_fields |= {"should_save"}
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
            best = self.state.best_model_checkpoint
            limit = self.args.save_total_limit or 0
            delete_old_checkpoints(folder, self._saved_step, limit, Path(best) if best else None)
        self.accelerator.wait_for_everyone()  # all processes load the best checkpoint by its name


def _publish(written: Path, checkpoint: Path) -> None:
    """Rename a written checkpoint to its name, after all of its files are flushed to disk."""
    write_json(written / DIGESTS, digest_files(written))
    for path in (*written.rglob("*"), written):
        _flush(path)
    shutil.rmtree(checkpoint, ignore_errors=True)  # from before a resume, if there is one
    written.rename(checkpoint)
    written.parent.rmdir()
    for folder in checkpoint.parent.glob("checkpoint-*"):
        with suppress(OSError):  # the folder is not empty
            folder.rmdir()  # created by `enable_jit_checkpoint` for a save that was postponed
    _flush(checkpoint.parent)


def delete_old_checkpoints(folder: Path, newest: int, limit: int, best: Path | None) -> None:
    """Delete the oldest checkpoints of a folder until `limit` are left, but not the newest or best.

    The steps of a run only increase. So checkpoints with more steps than the newest are from an
    earlier run in the same folder, and are deleted first. Modification times would not tell: some
    file systems have none.

    Args:
        newest: the number of steps of the checkpoint that was written last.
        limit: 0: delete none.
        best: the checkpoint with the best evaluation, if there is one.
    """
    checkpoints = sorted(
        _list_checkpoints(folder), key=lambda checkpoint: (checkpoint[0] <= newest, checkpoint[0])
    )
    deletable = [path for step, path in checkpoints if step != newest and path != best]
    excess = len(checkpoints) - limit if limit > 0 else 0
    for path in deletable[: max(0, excess)]:
        shutil.rmtree(path, ignore_errors=True)


def _warn_of_earlier_run(folder: Path) -> None:
    """Warn if a folder has checkpoints before a run from the beginning."""
    step, checkpoint = max(_list_checkpoints(folder), default=(0, None))
    if checkpoint:
        logger.warning(
            "%s is from an earlier run, and this run starts from the beginning. Until this run has "
            "deleted it or saved a checkpoint after more than %d steps, "
            "train(resume_from_checkpoint=True) would continue the earlier run: delete the "
            "earlier checkpoints, or set another output_dir",
            checkpoint,
            step,
        )


def _flush(path: Path) -> None:
    """Flush a file, or a folder's list of files, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def preserve_random_states() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch at the end of the context."""
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
