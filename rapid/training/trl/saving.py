"""Checkpoints that are whole or not there, and of the moment between two steps."""

import json
import os
import random
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import torch
from transformers import Trainer
from transformers.trainer_utils import rotate_checkpoints
from typing_extensions import override

from rapid.artifacts.files import sha256_file, write_json
from rapid.training.refusals import refuse_weights

DIGESTS = "digests.json"  # in a checkpoint: the SHA-256 of its other files
PARTIAL = "partial"  # beside checkpoints: one that is being written, or was when its run was killed
TRAINER_STATE = "trainer_state.json"
STEP = re.compile(r"checkpoint-(\d+)")  # a checkpoint's name


def digests(checkpoint: Path) -> dict[str, str]:
    """Return the SHA-256 of a checkpoint's files, but of those digests."""
    files = (file for file in sorted(checkpoint.rglob("*")) if file.is_file())
    found = {file.relative_to(checkpoint).as_posix(): sha256_file(file) for file in files}
    found.pop(DIGESTS, None)
    return found


def damage(checkpoint: Path) -> str:
    """Return which files of a checkpoint are not as they were saved; "" where it is whole."""
    try:
        saved = json.loads((checkpoint / DIGESTS).read_text(encoding="utf-8"))
        found = saved.items() ^ digests(checkpoint).items()
    except (OSError, ValueError, AttributeError):
        return f"{DIGESTS} is missing or cannot be read"
    return ", ".join(sorted({name for name, _ in found}))


def newest(folder: Path, discard: bool = False) -> Path | None:
    """Return the newest checkpoint that is whole, and say what is wrong with newer ones.

    Args:
        discard: delete those.
    """
    named = [(STEP.fullmatch(one.name), one) for one in folder.glob("checkpoint-*")]
    for _, one in sorted(((int(name[1]), one) for name, one in named if name), reverse=True):
        if not (wrong := damage(one)):
            return one
        print(f"{one} is damaged, and left out: {wrong}", file=sys.stderr)
        if discard:
            shutil.rmtree(one)
    return None


class SavingTrainer(Trainer):
    """A Trainer that saves atomically, and in the middle of a step what it was before the step.

    transformers saves just before an optimizer's step where `enable_jit_checkpoint` asks for it.
    """

    _between: dict[str, Any] | None = None  # what `between_steps` returned last

    def between_steps(self) -> dict[str, Any]:
        """Return what a step changes before it changes weights; other steps must not change it."""
        state = self.state
        counts = {"step": state.global_step, "tokens": state.num_input_tokens_seen}
        return counts | {"random": _random_states()}

    def before_step(self) -> dict[str, Any]:
        """Return what `between_steps` returned before the step that is under way, or returns."""
        if self._between and self._between["step"] == self.state.global_step:
            return self._between
        return self.between_steps()

    @override
    def train(self, resume_from_checkpoint=None, *more, **named):
        """Resume from the newest checkpoint that is whole where True is given, not from the last.

        With `push_to_hub` it is the last, since those have no digests.

        Raises:
            ValueError: there is none, or the given one is damaged.
        """
        self._between = None
        if resume_from_checkpoint is True and not self.args.push_to_hub:
            found = newest(Path(self.args.output_dir or "."))
            if found is None:
                raise ValueError(f"{self.args.output_dir} has no checkpoint that is whole")
            resume_from_checkpoint = str(found)
        elif isinstance(resume_from_checkpoint, (str, Path)):
            given = Path(resume_from_checkpoint)
            if (given / DIGESTS).exists() and (wrong := damage(given)):
                raise ValueError(f"{given} is damaged: {wrong}")
        return super().train(resume_from_checkpoint, *more, **named)

    @override
    def _run_epoch(self, *args, **named):
        """Keep what a checkpoint within the first step will need, too."""
        self._between = self._between or self.between_steps()
        return super()._run_epoch(*args, **named)

    @override
    def _load_rng_state(self, checkpoint):
        """Restore what the next step depends on. Trainer calls this once, before that step."""
        super()._load_rng_state(checkpoint)
        self.restore(checkpoint)
        self._between = self.between_steps()

    def restore(self, checkpoint: str) -> None:
        """Restore what `between_steps` has beside random states."""

    @override
    def _maybe_log_save_evaluate(self, *args, **named):
        """Log, evaluate and save; then keep what a checkpoint within the next step will need."""
        self._between = None
        if self.control.should_save or self.control.should_evaluate:
            refuse_weights(self.model, self.args, self.state)
        super()._maybe_log_save_evaluate(*args, **named)
        self._between = self.between_steps()

    @override
    def _save_checkpoint(self, model, trial):
        """Write a checkpoint beside its place, bring it to the disk, then give it its name.

        Trainer writes in place: what is there of one when a run is killed looks like a whole one.
        It also deletes those that are older by the clock. Where it sends checkpoints to the hub it
        reads them while training goes on, so they stay where they are written.
        """
        if self.args.push_to_hub:
            return super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial))
        partial, name = folder / PARTIAL, f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            shutil.rmtree(partial, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        tokens = self.before_step()["tokens"]
        with (
            patch.object(self, "_get_output_dir", lambda trial=None: str(partial)),
            patch.object(self.state, "num_input_tokens_seen", tokens),
        ):
            super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if is_best := self.state.best_model_checkpoint == str(partial / name):
            self.state.best_model_checkpoint = str(folder / name)
        if self.args.should_save:
            if is_best:
                self.state.save_to_json(str(partial / name / TRAINER_STATE))
            _name(partial / name, folder / name)
            limit, best = self.args.save_total_limit, self.state.best_model_checkpoint
            rotate_checkpoints(str(folder), limit, best)
        self.accelerator.wait_for_everyone()  # all of them load the best one by its name

    @override
    def _save_rng_state(self, output_dir):
        """Save the states of random generators, as they were before the step."""
        with same_random_states():
            _set_random_states(self.before_step()["random"])
            super()._save_rng_state(output_dir)


def _name(written: Path, checkpoint: Path) -> None:
    """Give a checkpoint its name, once all of it has reached the disk."""
    write_json(written / DIGESTS, digests(written))
    for path in (*written.rglob("*"), written):
        _flush(path)
    shutil.rmtree(checkpoint, ignore_errors=True)  # of the same step, before the run was resumed
    written.rename(checkpoint)
    written.parent.rmdir()
    _flush(checkpoint.parent)


def _flush(path: Path) -> None:
    """Bring a file, or a folder's list of files, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _random_states() -> dict[str, Any]:
    """Return the states of the generators that Trainer saves: of Python, NumPy and torch."""
    found = {"python": random.getstate(), "numpy": numpy.random.get_state()}
    found["cpu"] = torch.get_rng_state()
    if torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def _set_random_states(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    numpy.random.set_state(states["numpy"])
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])


@contextmanager
def same_random_states() -> Iterator[None]:
    """Undo what happens within to these generators."""
    states = _random_states()
    try:
        yield
    finally:
        _set_random_states(states)
