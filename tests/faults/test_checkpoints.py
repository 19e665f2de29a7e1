"""Which checkpoint a run goes on from, and which process may work on it."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rapid.artifacts import manifests
from rapid.artifacts.code import Spec
from rapid.artifacts.files import BadInput, write_json
from rapid.resources import leases as lease
from rapid.resources.leases import lease_folder
from rapid.training.resume import checkpoint_dir
from rapid.training.trl.saving_trainer import DIGESTS, digest_files, newest_checkpoint
from tests.faults.runs import is_held

FILES = {"model.safetensors": 4000, "optimizer.pt": 9000, "rng_state.pth": 700, "global_step3/a": 9}


@pytest.fixture
def checkpoints(tmp_path):
    """Two whole checkpoints, and one that was being written when its run was killed."""
    for name in ("checkpoint-9", "checkpoint-10", "partial/checkpoint-11"):
        for file, size in FILES.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_bytes(os.urandom(size))
        write_json(tmp_path / name / DIGESTS, digest_files(tmp_path / name))
    (tmp_path / "checkpoint-11-of-another").mkdir()  # no name of a checkpoint
    return tmp_path


DAMAGE = {
    "emptied": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"\0",
    "altered": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "deleted": None,
}
DIGESTS_ARE = ["", "[]", "{", '"text"', "{}", "\udcff"]


def check_the_one_before(checkpoints, capsys, wrong: str):
    assert newest_checkpoint(checkpoints) == checkpoints / "checkpoint-9"
    assert f"checkpoint-10 is damaged, and left out: {wrong}\n" in capsys.readouterr().err
    assert (checkpoints / "checkpoint-10").exists()
    assert newest_checkpoint(checkpoints, discard=True) == checkpoints / "checkpoint-9"
    assert not (checkpoints / "checkpoint-10").exists()
    shutil.rmtree(checkpoints / "checkpoint-9/global_step3")
    assert newest_checkpoint(checkpoints, discard=True) is None


@pytest.mark.fault("checkpoint damaged")
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("how", DAMAGE)
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(checkpoints, file, how, capsys):
    path = checkpoints / "checkpoint-10" / file
    data = path.read_bytes()
    path.unlink()
    if change := DAMAGE[how]:
        path.write_bytes(change(data))
    check_the_one_before(checkpoints, capsys, file)


@pytest.mark.fault("checkpoint damaged")
@pytest.mark.parametrize("text", DIGESTS_ARE)
def test_a_checkpoint_without_its_digests_is_no_checkpoint(checkpoints, text, capsys):
    path = checkpoints / "checkpoint-10" / DIGESTS
    path.write_text(text, errors="surrogateescape")
    everything = ", ".join(sorted(FILES))
    wrong = everything if text == "{}" else f"{DIGESTS} is missing or cannot be read"
    check_the_one_before(checkpoints, capsys, wrong)


@pytest.mark.fault("checkpoints of another run", times=20)
def test_what_is_saved_belongs_to_what_the_run_depends_on(tmp_path, monkeypatch, capsys):
    """On its code, its inputs and the versions of libraries."""
    data, folder = tmp_path / "train.jsonl", tmp_path / "run/checkpoints"
    now = {"code": "", "data": "", "torch": ""}
    monkeypatch.setattr("rapid.training.resume.versions", lambda: {"torch": now["torch"]})

    def found(main: bool = True):
        data.write_text(now["data"])
        return checkpoint_dir(folder, Spec(code=now["code"]), manifests.digests(data), main)

    for number in range(20):
        own = found()
        own.mkdir(parents=True)
        assert found() == own and own.exists()
        now[[*now][number % 3]] += "a"
        assert found(main=False) != own and own.exists()  # another process looks after it
        assert not capsys.readouterr().err
        assert found() != own and not own.exists()
        assert f"{tmp_path}/run: what was saved is of other parameters" in capsys.readouterr().err


@contextmanager
def leased(folder, then: Callable) -> Iterator[int]:
    """Fork a process that has a folder, and does something with it; yield its number."""
    reading, writing = os.pipe()
    if not (owner := os.fork()):
        status = 1
        try:
            with lease_folder(folder):
                os.write(writing, b".")
                then()
            status = 0
        finally:
            os._exit(status)
    assert os.read(reading, 1)
    yield owner
    os.close(reading)
    os.close(writing)


@pytest.mark.slow
@pytest.mark.fault("a run started twice", times=20)
def test_a_second_process_is_refused_and_a_dead_one_is_not_minded(tmp_path, monkeypatch):
    folder = tmp_path / "run/checkpoints"
    monkeypatch.setattr(lease, "REFUSED_AFTER", 0.1)
    for _ in range(20):
        with leased(folder, signal.pause) as owner:
            refused = rf"run: process {owner} of \S+ works on it\. Wait until"
            with pytest.raises(BadInput, match=refused), lease_folder(folder):
                pass
            os.kill(owner, signal.SIGKILL)
            os.waitpid(owner, 0)
            with lease_folder(folder):
                assert is_held(folder / "lock")
            assert not is_held(folder / "lock")


def test_a_run_that_ends_leaves_its_folder_to_who_waits_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "REFUSED_AFTER", 60.0)  # the machine may be busy
    folder = tmp_path / "run/checkpoints"

    def end() -> None:
        time.sleep(0.3)
        shutil.rmtree(folder, ignore_errors=True)  # who waits may make a lock meanwhile
        time.sleep(0.3)

    with leased(folder, end) as owner:
        with lease_folder(folder):
            assert is_held(folder / "lock")
        assert os.waitpid(owner, 0)[1] == 0
