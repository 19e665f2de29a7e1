"""How commands end: said in a line with the status that it has; a mistake of ours keeps its traceback."""

import errno
from types import SimpleNamespace

import pytest

from rapid.artifacts.files import BadInput
from rapid.errors.endings import ending
from rapid.grading.grader import GraderDied, GradingFailed
from rapid.grading.lean import LeanUnavailable
from rapid.stages import train_process
from rapid.vllm_server import ServerDied


def raising(error: Exception):
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadInput("wrong"), 2),
        (FileNotFoundError("wrong"), 2),
        (GraderDied("wrong"), 1),
        (GradingFailed("wrong"), 1),
        (LeanUnavailable("wrong"), 1),
        (ServerDied("wrong"), 1),
        (FloatingPointError("wrong"), 1),
    ],
)
def test_what_a_user_can_mend_is_said_in_a_line(error, status, capsys):
    assert ending("train", raising(error)) == status
    assert capsys.readouterr().err == "rapid train: wrong\n"


def test_what_is_lacking_is_said_with_the_folder(tmp_path, capsys):
    assert ending("train", raising(OSError(errno.ENOSPC, "full")), tmp_path) == 1
    assert capsys.readouterr().err.startswith(f"rapid train: {tmp_path}: no room on the disk: ")


def test_a_mistake_of_this_program_keeps_its_traceback():
    with pytest.raises(KeyError):
        ending("train", raising(KeyError("name")))


def test_a_process_of_several_ends_like_the_command(monkeypatch, tmp_path, capsys):
    job = SimpleNamespace(compute=SimpleNamespace(threads=1, device="cuda"))
    read = SimpleNamespace(with_code=lambda: job)
    spec = SimpleNamespace(model_validate_json=lambda text: read)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(train_process, "TrainSpec", spec)
    monkeypatch.setattr(train_process, "bind", lambda *_: None)
    monkeypatch.setattr(train_process, "end_with_parent", lambda: None)
    monkeypatch.setattr("rapid.stages.train.train", lambda *_: raising(LeanUnavailable("none"))())
    with pytest.raises(SystemExit) as ended:
        train_process.run("{}", "model", "data", str(tmp_path))
    assert ended.value.code == 1
    assert capsys.readouterr().err == "rapid train: none\n"
