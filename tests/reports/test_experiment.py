"""Files for `dvc exp show`: means over seeds, and curves by optimizer step."""

import json
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.files import write_jsonl
from rapid.artifacts.runs import StepRecord
from rapid.config.specs import list_dvc_runs
from reports.experiment import main
from tests.conftest import ROOT


def make_step(n: int, **fields) -> StepRecord:
    return StepRecord(step=n, seconds=n, loss=0.0, gradient_norm=1.0, **fields)


@pytest.fixture
def steps():
    """Steps of two runs: the second has one more, and neither has a clip fraction."""
    return [
        [make_step(1, reward=0.25, staleness=0.125), make_step(2, reward=0.5)],
        [make_step(1, reward=0.75), make_step(2, reward=1.0), make_step(3, reward=0.25)],
    ]


def test_experiment_has_the_means_of_its_runs(params, runs, steps, monkeypatch):
    monkeypatch.chdir(runs.root)
    runs.root, read_paths = Path(), set()
    scores, seconds, clip_fractions = ([8, 0], [8, 4]), (60, 90), (0.5, None)
    cases = zip(list_dvc_runs(params), steps, scores, seconds, clip_fractions, strict=True)
    for run, rows, correct, total, clip_fraction in cases:
        read_paths.add(runs.write_scores(run, correct, ks=(1, 8)).as_posix())
        read_paths.add(
            runs.write_summary(run, seconds=total, clip_fraction=clip_fraction).as_posix()
        )
        write_jsonl(path := Path(run.folder, "steps.jsonl"), rows)
        read_paths.add(runs.add_to_manifest(path).as_posix())
    assert main(["--config", params.model_dump_json(), "--out", "out"]) == 0
    out = Path("out")
    metrics = {
        "problems": "MBPP+ (made)",
        "pass@1": 62.5,
        "pass@8": 75.0,
        "runtime": 75.0,
        "clip_fraction": 0.5,
    }
    assert json.loads((out / "metrics.json").read_text()) == metrics
    curves = {path.stem: path.read_text() for path in (out / "live").rglob("*.tsv")}
    assert curves == {
        "reward": "step\treward\n1\t0.5\n2\t0.75\n3\t0.25\n",
        "staleness": "step\tstaleness\n1\t0.125\n",
    }
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["inputs"].keys() == read_paths and all(manifest["inputs"].values())
    assert "out/metrics.json" in manifest["outputs"]
    assert any(path.endswith("reward.tsv") for path in manifest["outputs"])


def test_unwritable_output_is_an_error_message(params, runs, monkeypatch, capsys):
    monkeypatch.chdir(runs.root)
    Path("file").touch()
    assert main(["--config", params.model_dump_json(), "--out", "file/out"]) == 1
    assert "reports.experiment: " in capsys.readouterr().err


def test_the_curves_that_dvc_draws_have_names_at_both_axes():
    """A plot of several files has "y" there otherwise."""
    plots = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["plots"]
    labels = {name: plot["y_label"] for entry in plots for name, plot in entry.items()}
    assert labels == {"reward": "reward", "staleness": "staleness", "seconds": "seconds"}
    assert all(plot["x_label"] for entry in plots for plot in entry.values())
