"""Errors that a user can correct are one line with an exit status; others keep their traceback."""

import errno
from types import SimpleNamespace

import pytest

from rapid.artifacts.files import BadInput
from rapid.errors.endings import run_command
from rapid.grading.grader import GraderDied, GradingFailed
from rapid.grading.lean import LeanUnavailable
from rapid.stages import train_process
from rapid.vllm_server import ServerDied


def make_raising_action(error: Exception):
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
def test_an_error_that_a_user_can_correct_is_one_line(error, status, capsys):
    assert run_command("train", make_raising_action(error)) == status
    assert capsys.readouterr().err == "rapid train: wrong\n"


def test_a_full_disk_is_reported_with_the_folder(tmp_path, capsys):
    write = make_raising_action(OSError(errno.ENOSPC, "full"))
    assert run_command("train", write, tmp_path) == 1
    assert capsys.readouterr().err.startswith(
        f"rapid train: {tmp_path}: no space left on the disk: "
    )


def test_an_unexpected_error_keeps_its_traceback():
    with pytest.raises(KeyError):
        run_command("train", make_raising_action(KeyError("name")))


def test_a_process_of_a_distributed_run_prints_the_same_line_and_status(
    monkeypatch, tmp_path, capsys
):
    job = SimpleNamespace(compute=SimpleNamespace(threads=1, device="cuda"))
    spec_type = SimpleNamespace(
        model_validate_json=lambda text: SimpleNamespace(with_code_digest=lambda: job)
    )
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(train_process, "TrainSpec", spec_type)
    monkeypatch.setattr(train_process, "bind_to_cores", lambda *_: None)
    monkeypatch.setattr(train_process, "end_with_parent", lambda: None)
    fail = make_raising_action(LeanUnavailable("none"))
    monkeypatch.setattr("rapid.stages.train.train", lambda *_: fail())
    with pytest.raises(SystemExit) as exit_error:
        train_process.run_process("{}", "model", "data", str(tmp_path))
    assert exit_error.value.code == 1
    assert capsys.readouterr().err == "rapid train: none\n"
