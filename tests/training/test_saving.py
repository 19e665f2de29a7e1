"""Checkpoints in a folder, and the random generators whose states they hold."""

import os
import random
from pathlib import Path

import numpy
import pytest
import torch

from rapid.artifacts.files import write_json
from rapid.training.trl.saving import DIGESTS, digests, newest, same_random_states
from tests.training.conformance.test_resume import build


@pytest.fixture
def checkpoints(tmp_path):
    """Three whole checkpoints, of which the first by name is neither the newest nor the oldest."""
    for step in (2, 9, 10):
        folder = tmp_path / f"checkpoint-{step}"
        (folder / "inner").mkdir(parents=True)
        (folder / "inner/file").write_text("text")
        write_json(folder / DIGESTS, digests(folder))
    return tmp_path


def test_the_newest_whole_checkpoint_is_found_and_damaged_ones_go_where_that_is_asked(checkpoints):
    assert newest(checkpoints) == checkpoints / "checkpoint-10"
    for step in (10, 9):
        (checkpoints / f"checkpoint-{step}/inner/file").write_text("another")
    (checkpoints / "checkpoint-11-of-another").mkdir()  # no name of a checkpoint
    for discard, left in (({}, {2, 9, 10}), ({"discard": True}, {2})):
        assert newest(checkpoints, **discard) == checkpoints / "checkpoint-2"
        assert {*checkpoints.glob("checkpoint-*[0-9]")} == {
            checkpoints / f"checkpoint-{step}" for step in left
        }


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

    trainer = build(toy_model, tmp_path, H=1, max_steps=1)
    monkeypatch.setattr(os, "fsync", sync)
    trainer.train()
    checkpoint = tmp_path / "checkpoint-1"
    assert {one.stat().st_ino for one in (checkpoint, *checkpoint.rglob("*"))} <= {*before}
    assert tmp_path.stat().st_ino in after
    assert not [one for one in Path("/proc/self/fd").iterdir() if tmp_path in one.resolve().parents]
