"""A run resumes from the newest whole checkpoint of its own."""

import os
import shutil

import pytest

from rapid.artifacts import manifests
from rapid.artifacts.code import Spec
from rapid.artifacts.files import write_json
from rapid.training.resume import checkpoint_dir
from rapid.training.trl.saving_trainer import DIGESTS, digest_files, newest_checkpoint

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
    "deleted": lambda data: None,
}
UNREADABLE = f"{DIGESTS} is missing or cannot be read"
DAMAGED_FILES = [(name, change, name) for name in FILES for change in DAMAGE.values()]
DAMAGED_FILES += [
    (DIGESTS, lambda _, text=text: text, UNREADABLE)
    for text in (b"", b"[]", b"{", b'"text"', b"\xff")
]
DAMAGED_FILES += [(DIGESTS, lambda _: b"{}", ", ".join(sorted(FILES)))]


@pytest.mark.fault("checkpoints: file damaged")
@pytest.mark.parametrize(("name", "change", "message"), DAMAGED_FILES)
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    checkpoints, capsys, name, change, message
):
    path = checkpoints / "checkpoint-10" / name
    data = change(path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    assert newest_checkpoint(checkpoints) == checkpoints / "checkpoint-9"
    assert f"checkpoint-10 is damaged, and skipped: {message}\n" in capsys.readouterr().err
    assert (checkpoints / "checkpoint-10").exists()
    assert newest_checkpoint(checkpoints, discard=True) == checkpoints / "checkpoint-9"
    assert not (checkpoints / "checkpoint-10").exists()
    shutil.rmtree(checkpoints / "checkpoint-9/global_step3")
    assert newest_checkpoint(checkpoints, discard=True) is None


@pytest.mark.fault("checkpoints: of another run", times=20)
def test_checkpoints_belong_to_the_code_inputs_and_libraries_of_a_run(
    tmp_path, monkeypatch, capsys
):
    data, folder = tmp_path / "train.jsonl", tmp_path / "run/checkpoints"
    state = {"code": "", "data": "", "torch": ""}
    monkeypatch.setattr("rapid.training.resume.get_versions", lambda: {"torch": state["torch"]})

    def find_folder(main: bool = True):
        data.write_text(state["data"])
        return checkpoint_dir(folder, Spec(code=state["code"]), manifests.hash_files(data), main)

    for number in range(20):
        current = find_folder()
        current.mkdir(parents=True)
        assert find_folder() == current and current.exists()
        state[[*state][number % 3]] += "a"
        assert find_folder(main=False) != current and current.exists()  # the main process deletes
        assert not capsys.readouterr().err
        assert find_folder() != current and not current.exists()
        assert f"{tmp_path}/run: its checkpoints are of other parameters" in capsys.readouterr().err
