"""Checkpoints in a folder, and the random generators whose states they hold."""

import os
import random
from pathlib import Path

import numpy
import pytest
import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from rapid import RapidConfig
from rapid.training.trl.saving_trainer import DIGESTS, same_random_states
from tests.training.conformance.test_resume import build_trainer


def test_what_draws_within_changes_no_generator():
    def draw() -> tuple[float, float, float]:
        return random.random(), numpy.random.random(), torch.rand(()).item()

    with same_random_states():
        expected = draw()
        assert all(one != other for one, other in zip(draw(), expected, strict=True))
    assert draw() == expected


def test_all_of_a_checkpoint_is_on_the_disk_before_it_has_its_name(
    toy_model, tmp_path, monkeypatch
):
    """Its folders, too, and then that it was renamed; and no file stays open."""
    before, after, synced = [], [], os.fsync

    def sync(descriptor: int) -> None:
        named = (tmp_path / "checkpoint-1").exists()
        (after if named else before).append(os.fstat(descriptor).st_ino)
        synced(descriptor)

    trainer = build_trainer(toy_model, tmp_path, H=1, max_steps=1)
    monkeypatch.setattr(os, "fsync", sync)
    trainer.train()
    checkpoint = tmp_path / "checkpoint-1"
    assert {one.stat().st_ino for one in (checkpoint, *checkpoint.rglob("*"))} <= {*before}
    assert tmp_path.stat().st_ino in after
    assert not [one for one in Path("/proc/self/fd").iterdir() if tmp_path in one.resolve().parents]


def test_every_process_knows_the_best_checkpoint_by_its_name(toy_model, tmp_path, monkeypatch):
    """Also one that writes none."""

    def saved(self, model, trial):  # by another process
        best = f"checkpoint-{self.state.global_step}"
        self.state.best_model_checkpoint = str(Path(self._get_output_dir(trial), best))

    trainer = build_trainer(toy_model, tmp_path, H=1, max_steps=1)
    trainer.train()
    monkeypatch.setattr(GRPOTrainer, "_save_checkpoint", saved)
    monkeypatch.setattr(RapidConfig, "should_save", False)
    trainer.train()
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-1")


def test_a_run_that_pushes_checkpoints_is_resumed_from_the_last(toy_model, tmp_path, monkeypatch):
    """They are written in place, without digests."""
    monkeypatch.setattr(GRPOTrainer, "_push_from_checkpoint", lambda *_: None)
    monkeypatch.setattr(GRPOTrainer, "_finish_current_push", lambda *_: None)
    for steps, resumed in ((2, None), (3, True)):
        trainer = build_trainer(toy_model, tmp_path, H=1, max_steps=steps)
        trainer.args.push_to_hub = True
        trainer.train(resumed)
    assert not list(tmp_path.rglob(DIGESTS))
    assert trainer.completions_sampled == 3 * 4


@pytest.mark.parametrize("when", ["save", "eval"])
def test_all_weights_are_looked_at_before_they_are_saved_or_evaluated(toy_model, tmp_path, when):
    """Also in the end of an epoch, which is after a step's."""

    class Spoils(TrainerCallback):
        def on_epoch_end(self, args, state, control, model=None, **_):
            with torch.no_grad():
                max(model.parameters(), key=torch.Tensor.numel)[0, 0] = torch.nan

    settings = {"H": 1, "num_train_epochs": 1, "max_steps": -1, "save_strategy": "no"}
    settings[f"{when}_strategy"] = "epoch"
    trainer = build_trainer(toy_model, tmp_path, arguments={"callbacks": [Spoils()]}, **settings)
    with pytest.raises(FloatingPointError, match="weights have become infinite or NaN"):
        trainer.train()
    assert not list(tmp_path.glob("checkpoint-*"))
