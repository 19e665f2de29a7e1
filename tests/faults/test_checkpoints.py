"""A run resumes from its newest undamaged checkpoint."""

import os
import shutil

import pytest

from rapid.artifacts import manifests
from rapid.artifacts.code import Spec
from rapid.artifacts.files import write_json
from rapid.training.resume import prepare_checkpoint_dir
from rapid.training.trl.saving_trainer import DIGESTS, digest_files, find_newest_checkpoint

FILES = {"model.safetensors": 4000, "optimizer.pt": 9000, "rng_state.pth": 700, "global_step3/a": 9}


@pytest.fixture
def checkpoints(tmp_path):
    """Two complete checkpoints, and one that was being written when its run was killed."""
    for name in ("checkpoint-9", "checkpoint-10", "partial/checkpoint-11"):
        for file, size in FILES.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_bytes(os.urandom(size))
        write_json(tmp_path / name / DIGESTS, digest_files(tmp_path / name))
    (tmp_path / "checkpoint-11-of-another").mkdir()  # not the name of a checkpoint
    return tmp_path


DAMAGES = {
    "emptied": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"\0",
    "altered": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "deleted": lambda data: None,
}
UNREADABLE = f"{DIGESTS} is missing or cannot be read"
CASES = [(name, change, name) for name in FILES for change in DAMAGES.values()]
CASES += [
    (DIGESTS, lambda _, text=text: text, UNREADABLE)
    for text in (b"", b"[]", b"{", b"{}", b'"text"', b"\xff")
]


@pytest.mark.fault("checkpoints: file damaged")
@pytest.mark.parametrize(("name", "change", "message"), CASES)
def test_a_run_resumes_from_the_checkpoint_before_a_damaged_one(
    checkpoints, capsys, name, change, message
):
    path = checkpoints / "checkpoint-10" / name
    data = change(path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    assert find_newest_checkpoint(checkpoints) == checkpoints / "checkpoint-9"
    skipped = f"checkpoint-10 is skipped, because it is damaged: {message}\n"
    assert skipped in capsys.readouterr().err
    assert (checkpoints / "checkpoint-10").exists()
    assert find_newest_checkpoint(checkpoints, delete_damaged=True) == checkpoints / "checkpoint-9"
    assert "checkpoint-10 is deleted, because it is damaged" in capsys.readouterr().err
    assert not (checkpoints / "checkpoint-10").exists()
    shutil.rmtree(checkpoints / "checkpoint-9/global_step3")
    assert find_newest_checkpoint(checkpoints, delete_damaged=True) is None


@pytest.mark.fault("checkpoints: of another run", times=20)
def test_checkpoints_are_used_only_with_the_same_code_inputs_and_libraries(
    tmp_path, monkeypatch, capsys
):
    data, folder = tmp_path / "train.jsonl", tmp_path / "run/checkpoints"
    state = {"code": "", "data": "", "torch": ""}
    monkeypatch.setattr("rapid.training.resume.get_versions", lambda: {"torch": state["torch"]})

    def find_folder(is_main_process: bool = True):
        data.write_text(state["data"])
        return prepare_checkpoint_dir(
            folder, Spec(code=state["code"]), manifests.hash_files(data), is_main_process
        )

    for number in range(20):
        current = find_folder()
        current.mkdir(parents=True)
        assert find_folder() == current and current.exists()
        state[[*state][number % 3]] += "a"
        # Only the main process deletes checkpoints.
        assert find_folder(is_main_process=False) != current and current.exists()
        assert not capsys.readouterr().err
        assert find_folder() != current and not current.exists()
        assert (
            f"{tmp_path}/run: deleting checkpoints of other parameters" in capsys.readouterr().err
        )
