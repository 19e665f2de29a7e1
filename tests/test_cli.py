"""The `rapid` command: its help, its errors and exit statuses, and its summary lines."""

import json
import os
import subprocess
import sys

import pytest

from rapid import __version__
from rapid.__main__ import main
from rapid.artifacts.files import write_jsonl
from rapid.artifacts.runs import RunSummary, Runtime, StepRecord
from rapid.cli import run
from rapid.config.params import load
from rapid.config.specs import PrepareSpec, Run, build_evaluate_spec, build_train_spec
from rapid.processes.fork_server import RETRY_STATUS
from tests.conftest import ROOT
from tests.subprocesses import python

STAGES = ("prepare", "tokenizer", "pretrain", "distill", "train", "evaluate", "lean-setup")


@pytest.mark.parametrize(("option", "names"), [("--help", STAGES), ("--version", [__version__])])
def test_help_lists_every_stage_and_version_prints_the_version(capsys, option, names):
    with pytest.raises(SystemExit) as exit_error:
        run([option])
    assert exit_error.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in names)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["trian"], "train"),
        (["plan", "--calibrat", "runs", "--memry", "8"], "--memory"),
        (["grade", "--benchmark", "mbpp"], "mbpp_plus"),
    ],
)
def test_an_unknown_command_or_choice_is_refused_with_a_suggestion(capsys, arguments, suggestion):
    with pytest.raises(SystemExit) as exit_error:
        run(arguments)
    assert exit_error.value.code == 2
    assert capsys.readouterr().err.endswith(f"; did you mean {suggestion}?\n")


@pytest.mark.parametrize("width", ["40", "80"])
def test_help_is_wrapped_between_words(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    with pytest.raises(SystemExit):
        run(["plan", "--help"])
    words = capsys.readouterr().out.split()
    assert {"GPU-hours,", "published"} <= {*words}


def test_a_command_whose_output_pipe_is_closed_ends_without_a_message():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "rapid", "plan", "--gpu", "h100"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{", "--spec: not JSON"),
        ("[1]", "--spec: neither JSON nor a file: '[1]'"),
        (".", "--spec: neither JSON nor a file: '.'"),
        ('{"benchmark": "gsm8k"}', "Input should be 'mbpp_plus', 'math'"),
        ("no/such/file.json", "No such file"),
    ],
)
def test_a_wrong_spec_is_refused_with_status_2(capsys, tmp_path, spec, message):
    assert run(["prepare", "--spec", spec, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


SPEC = {"benchmark": "math", "data_seed": 0, "train": 8, "test": 4, "demonstrations": 50}


def test_a_manifest_can_be_used_as_a_spec_and_records_the_code(tmp_path):
    """A job that is repeated from its manifest has the same results."""
    first, second = tmp_path / "first", tmp_path / "second"
    run_prepare(json.dumps({**SPEC, "code": "another"}), first)
    manifest = json.loads((first / "manifest.json").read_text())
    assert manifest["spec"]["code"] == PrepareSpec(**SPEC).with_code_digest().code
    assert manifest["code"] == PrepareSpec(**SPEC).hash_code_files()
    run_prepare(str(first / "manifest.json"), second)
    for name in ("train.jsonl", "test.jsonl", "pretrain.jsonl"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def run_prepare(spec, out, status=0):
    """Run `rapid prepare` in its own process, which leases a core until it ends."""
    return python("-m", "rapid", "prepare", "--spec", spec, "--out", out, status=status)


def test_a_missing_source_is_refused_with_status_2(tmp_path):
    ended = run_prepare(json.dumps(SPEC | {"source": "nowhere"}), tmp_path / "out", status=2)
    assert "nor an existing file or folder" in ended.stderr
    assert "Traceback" not in ended.stderr


PG = Run(benchmark="math", model="tiny-qwen2", algorithm="pg", seed=1)


@pytest.fixture
def train_command(monkeypatch, tmp_path, values):
    """Return a function that makes the command of a run whose training returns a given summary."""

    def make(signal: float | None = 0.5, **summary) -> list[str]:
        ended = RunSummary(**PG.model_dump(), runtime=Runtime(total=1.0, other=1.0), **summary)
        step = StepRecord(step=1, seconds=1.0, loss=0.0, gradient_norm=0.0, signal=signal)
        write_jsonl(tmp_path / "steps.jsonl", [step])
        monkeypatch.setattr("rapid.stages.train.train", lambda *_: ended)
        monkeypatch.setattr("rapid.resources.requests.lease_resources", lambda spec: None)
        spec = build_train_spec(load(values), PG).model_dump_json()
        paths = [f"--{name}={tmp_path}" for name in ("model", "data", "out")]
        return ["train", "--spec", spec, *paths]

    return make


@pytest.mark.parametrize(("signal", "learned_nothing"), [(0.0, True), (0.5, False), (None, False)])
def test_a_run_without_any_gradient_reports_that_nothing_was_learned(
    train_command, tmp_path, capsys, signal, learned_nothing
):
    run(train_command(signal, reward_last=0.0))
    learned = "in each group all rewards were equal, " if learned_nothing else ""
    expected = f"{tmp_path}: reward 0.0%, {learned}1.0 s of training"
    assert expected in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("disturbed", [True, False])
def test_a_disturbed_run_has_the_status_for_a_retry(monkeypatch, train_command, disturbed):
    command = train_command(disturbed=disturbed)
    assert run(command) == (RETRY_STATUS if disturbed else 0)
    monkeypatch.delenv("RAPID_FORK_SERVER", raising=False)
    monkeypatch.setattr("sys.argv", ["rapid", *command])
    assert main() == 0


def test_rapid_ask_samples_from_a_model_and_refuses_a_folder_without_one(
    toy_model, tmp_path, capsys
):
    arguments = ["ask", "--samples", "2", "--max-tokens", "3", "ab", "--model"]
    assert run([*arguments, str(toy_model)]) == 0
    assert "\n\n" in capsys.readouterr().out
    assert run([*arguments, str(tmp_path)]) == 2
    assert "not a model's folder" in capsys.readouterr().err


def test_an_unknown_model_is_reported_with_the_known_models(values, tmp_path, monkeypatch, capsys):
    params = load(values)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/a").mkdir(parents=True)
    (tmp_path / "models/a/config.json").touch()
    paths = ["--data", "d", "--out", "o"]
    for arguments in (
        ["ask", "ab"],
        ["train", "--spec", build_train_spec(params, PG).model_dump_json(), *paths],
        ["evaluate", "--spec", build_evaluate_spec(params, PG).model_dump_json(), *paths],
    ):
        for folder in ("models/typo", "typo"):
            assert run([*arguments, "--model", folder]) == 2
            message = f"--model {folder}: the folder does not exist; models here: models/a\n"
            assert capsys.readouterr().err.endswith(message)


def test_commands_outside_a_clone_say_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in ("preflight", "verify"):
        assert run([command]) == 2
        assert "params.yaml: cannot be read: No such" in (error := capsys.readouterr().err)
        assert error.endswith("Change to the folder of your clone\n")


@pytest.mark.parametrize(
    ("existing", "message", "status"),
    [
        ([], "change to the folder of your clone", 2),
        (["params.yaml"], "No results yet: run `make tables`", 0),
        (["params.yaml", "runs/x"], "`make tables` runs the others", 0),
        (["params.yaml", "runs/x", "reports/report.html"], "    reports/report.html", 0),
        (["params.yaml", "experiments/a/reports/report.html"], "    experiments/a/reports", 0),
    ],
)
def test_rapid_without_arguments_says_what_to_do_next(
    existing, message, status, tmp_path, monkeypatch, capsys
):
    for path in existing:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    monkeypatch.chdir(tmp_path)
    assert run([]) == status
    assert message in capsys.readouterr().out
