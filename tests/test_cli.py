"""The `rapid` command: what it refuses, and how."""

import json

import pytest

from rapid import __version__
from rapid.__main__ import main
from rapid.artifacts.runs import RunSummary, Runtime
from rapid.cli import run
from rapid.config.params import load, read
from rapid.config.specs import PrepareSpec, Run, evaluate_spec, train_spec
from rapid.machine.warm import AGAIN
from tests.conftest import ROOT
from tests.processes import python


def test_help_names_every_stage(capsys):
    with pytest.raises(SystemExit) as stop:
        run(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for stage in ("prepare", "tokenizer", "pretrain", "distill", "train", "evaluate", "lean-setup"):
        assert stage in text


def test_version(capsys):
    with pytest.raises(SystemExit):
        run(["--version"])
    assert __version__ in capsys.readouterr().out


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


def test_a_manifest_is_a_spec(tmp_path):
    """A job is repeated from its manifest, with the same result."""
    spec = {"benchmark": "math", "data_seed": 0, "train": 8, "test": 4, "demonstrations": 50}
    first, second = tmp_path / "first", tmp_path / "second"
    run_prepare(json.dumps(spec), first)
    run_prepare(str(first / "manifest.json"), second)
    for name in ("train.jsonl", "test.jsonl", "pretrain.jsonl"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_job_notes_the_code_that_ran_and_not_that_it_was_planned_with(tmp_path):
    spec = {"benchmark": "math", "data_seed": 0, "train": 8, "test": 4, "demonstrations": 0}
    run_prepare(json.dumps({**spec, "code": "another"}), tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["spec"]["code"] == PrepareSpec(**spec).with_code().code
    assert manifest["code"] == PrepareSpec(**spec).files()


def run_prepare(spec, out, status=0):
    """In a process of its own: the command leases a core until its process ends."""
    return python("-m", "rapid", "prepare", "--spec", spec, "--out", out, status=status)


def test_a_source_that_is_nowhere_is_refused_with_status_2(tmp_path):
    spec = {"benchmark": "math", "source": "nowhere", "data_seed": 0, "train": 8, "test": 4}
    failed = run_prepare(json.dumps({**spec, "demonstrations": 0}), tmp_path / "out", status=2)
    assert "no such file or folder" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("disturbed", [True, False])
def test_a_disturbed_run_says_so_by_its_status(monkeypatch, tmp_path, disturbed):
    made = Run(benchmark="math", model="tiny-qwen2", algorithm="pg", seed=1)
    summary = RunSummary(
        **made.model_dump(), runtime=Runtime(total=1.0, other=1.0), disturbed=disturbed
    )
    monkeypatch.setattr("rapid.stages.train.train", lambda *_: summary)
    monkeypatch.setattr("rapid.machine.resources.lease", lambda spec: None)
    spec = train_spec(load(read(ROOT / "params.yaml")), made).model_dump_json()
    paths = [f"--{name}={tmp_path}" for name in ("model", "data", "out")]
    command = ["train", "--spec", spec, *paths]
    assert run(command) == (AGAIN if disturbed else 0)
    monkeypatch.delenv("RAPID_WARM", raising=False)
    monkeypatch.setattr("sys.argv", ["rapid", *command])
    assert main() == 0


def test_a_model_is_asked(toy_model, capsys):
    asked = ["ask", "--model", str(toy_model), "--samples", "2", "--max-tokens", "3", "ab"]
    assert run(asked) == 0
    assert "\n\n" in capsys.readouterr().out


def test_a_folder_without_a_model_is_not_asked(tmp_path, capsys):
    assert run(["ask", "--model", str(tmp_path), "ab"]) == 2
    assert "not a model's folder" in capsys.readouterr().err


def test_an_unknown_model_is_named_beside_those_known(tmp_path, monkeypatch, capsys):
    made = Run(benchmark="math", model="tiny-qwen2", algorithm="pg", seed=1)
    params = load(read(ROOT / "params.yaml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/a").mkdir(parents=True)
    (tmp_path / "models/a/config.json").touch()
    paths = ["--data", "d", "--out", "o"]
    for given in (
        ["ask", "ab"],
        ["train", "--spec", train_spec(params, made).model_dump_json(), *paths],
        ["evaluate", "--spec", evaluate_spec(params, made).model_dump_json(), *paths],
    ):
        for folder in ("models/typo", "typo"):
            assert run([*given, "--model", folder]) == 2
            said = f"--model {folder}: there is no such folder; known models: models/a\n"
            assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize(
    ("there", "said", "status"),
    [
        ([], "go to the folder that you cloned", 2),
        (["params.yaml"], "No results yet: `make tables`", 0),
        (["params.yaml", "runs/x"], "`make tables` goes on", 0),
        (["params.yaml", "runs/x", "reports/report.html"], "    reports/report.html", 0),
        (["params.yaml", "experiments/a/reports/report.html"], "    experiments/a/reports", 0),
    ],
)
def test_alone_it_says_what_to_do_next(there, said, status, tmp_path, monkeypatch, capsys):
    for path in there:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    monkeypatch.chdir(tmp_path)
    assert run([]) == status
    assert said in capsys.readouterr().out
