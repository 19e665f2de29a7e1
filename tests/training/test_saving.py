"""Checkpoints are written durably, and saving does not change random generators or bad weights."""

import os
import random
from pathlib import Path

import numpy
import pytest
import torch
from transformers import Trainer, TrainerCallback
from trl import GRPOTrainer

from rapid import RapidConfig
from rapid.training.trl.saving_trainer import (
    DIGESTS,
    delete_old_checkpoints,
    describe_damage,
    find_newest_checkpoint,
    preserve_random_states,
)
from tests.training.conformance.test_resume import build_trainer
from tests.training.loops import build_rapid_trainer


def test_random_states_are_restored():
    def draw() -> tuple[float, float, float]:
        return random.random(), numpy.random.random(), torch.rand(()).item()

    with preserve_random_states():
        expected = draw()
        assert all(
            value != expected_value for value, expected_value in zip(draw(), expected, strict=True)
        )
    assert draw() == expected


def test_checkpoint_is_synced_to_disk_before_rename(toy_model, tmp_path, monkeypatch):
    """Folders and the renaming are synced as well, and no file stays open."""
    synced_before_rename, synced_after_rename, fsync = [], [], os.fsync

    def sync(descriptor: int) -> None:
        is_renamed = (tmp_path / "checkpoint-1").exists()
        (synced_after_rename if is_renamed else synced_before_rename).append(
            os.fstat(descriptor).st_ino
        )
        fsync(descriptor)

    trainer = build_trainer(toy_model, tmp_path, H=1, max_steps=1)
    monkeypatch.setattr(os, "fsync", sync)
    trainer.train()
    checkpoint = tmp_path / "checkpoint-1"
    assert {path.stat().st_ino for path in (checkpoint, *checkpoint.rglob("*"))} <= {
        *synced_before_rename
    }
    assert tmp_path.stat().st_ino in synced_after_rename
    assert not [
        path for path in Path("/proc/self/fd").iterdir() if tmp_path in path.resolve().parents
    ]


def test_every_process_knows_name_of_best_checkpoint(toy_model, tmp_path, monkeypatch):
    """A process that writes no checkpoint knows it as well."""

    def save_in_main_process(self, model, trial):
        best_checkpoint = f"checkpoint-{self.state.global_step}"
        self.state.best_model_checkpoint = str(Path(self._get_output_dir(trial), best_checkpoint))

    trainer = build_trainer(toy_model, tmp_path, H=1, max_steps=1)
    trainer.train()
    monkeypatch.setattr(GRPOTrainer, "_save_checkpoint", save_in_main_process)
    monkeypatch.setattr(RapidConfig, "should_save", False)
    trainer.train()
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-1")


def test_vllm_gets_the_weights_of_the_best_checkpoint(toy_model, tmp_path, monkeypatch):
    """TRL sends vLLM the weights if the step differs from the one whose weights vLLM has."""
    monkeypatch.setattr(Trainer, "_load_best_model", lambda self: None)
    trainer = build_trainer(toy_model, tmp_path, H=1, max_steps=1)
    trainer._last_loaded_step = trainer.state.global_step = 1
    trainer._load_best_model()
    assert trainer._last_loaded_step != trainer.state.global_step


def test_run_that_pushes_checkpoints_is_resumed(toy_model, tmp_path, monkeypatch):
    """Such checkpoints are written in place, without digests."""
    monkeypatch.setattr(GRPOTrainer, "_push_from_checkpoint", lambda *_: None)
    monkeypatch.setattr(GRPOTrainer, "_finish_current_push", lambda *_: None)
    for steps, resume in ((2, None), (3, True)):
        trainer = build_trainer(toy_model, tmp_path, H=1, max_steps=steps)
        trainer.args.push_to_hub = True
        trainer.train(resume)
    assert not list(tmp_path.rglob(DIGESTS))
    assert trainer.completions_sampled == 3 * 4


def test_file_that_a_callback_adds_is_no_damage(toy_model, tmp_path):
    class AddFile(TrainerCallback):
        def on_save(self, args, state, control, **_):
            (tmp_path / f"checkpoint-{state.global_step}" / "merged.bin").write_text("merged")

    trainer = build_trainer(toy_model, tmp_path, H=1, max_steps=2)
    trainer.add_callback(AddFile())
    trainer.train()
    checkpoint = find_newest_checkpoint(tmp_path)
    assert checkpoint == tmp_path / "checkpoint-2"
    (checkpoint / "trainer_state.json").unlink()
    assert describe_damage(checkpoint) == "trainer_state.json"


def test_second_run_in_a_folder_keeps_its_own_checkpoints(toy_model, tmp_path, caplog):
    """Those of the first run have more steps, and are deleted first."""
    for steps in (6, 3):
        trainer = build_trainer(toy_model, tmp_path, H=1, max_steps=steps, save_total_limit=2)
        assert "is from an earlier run" not in caplog.text
        trainer.train()
    assert {path.name for path in tmp_path.glob("*-*")} == {"checkpoint-2", "checkpoint-3"}
    assert "checkpoint-6 is from an earlier run" in caplog.text


@pytest.mark.parametrize(
    ("best", "limit", "kept"),
    [(None, 1, "4"), (None, 3, "1 3 4"), (None, 0, "1 3 4 7 9"), ("9", 2, "4 9"), ("9", 1, "4 9")],
)
def test_newest_and_best_checkpoints_are_never_deleted(tmp_path, best, limit, kept):
    """Checkpoints of 7 and 9 steps are from an earlier run, as the newest has 4 steps."""
    for step in "13479":
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-9-copy").mkdir()
    best_checkpoint = tmp_path / f"checkpoint-{best}" if best else None
    delete_old_checkpoints(tmp_path, 4, limit, best_checkpoint)
    expected = {f"checkpoint-{step}" for step in (*kept.split(), "9-copy")}
    assert {path.name for path in tmp_path.iterdir()} == expected


@pytest.mark.parametrize("event", ["save", "eval"])
def test_nan_weights_are_neither_saved_nor_evaluated(toy_model, tmp_path, event):
    """The end of an epoch comes after the checks at the end of a step."""

    class NanAtEpochEnd(TrainerCallback):
        def on_epoch_end(self, args, state, control, model=None, **_):
            with torch.no_grad():
                max(model.parameters(), key=torch.Tensor.numel)[0, 0] = torch.nan

    settings = {"H": 1, "num_train_epochs": 1, "max_steps": -1, "save_strategy": "no"}
    settings[f"{event}_strategy"] = "epoch"
    trainer = build_trainer(
        toy_model, tmp_path, arguments={"callbacks": [NanAtEpochEnd()]}, **settings
    )
    with pytest.raises(FloatingPointError, match="weights have become infinite or NaN"):
        trainer.train()
    assert not list(tmp_path.glob("checkpoint-*"))


def test_resuming_a_first_run_says_what_to_do(toy_model, tmp_path):
    trainer = build_rapid_trainer(toy_model, tmp_path, "rapid")
    message = (
        "has no intact checkpoint: to train from the beginning, call train without resume_from"
    )
    with pytest.raises(ValueError, match=message):
        trainer.train(resume_from_checkpoint=True)
