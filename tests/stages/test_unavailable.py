"""What cannot be had is said in the stage's file; no figure is made up for it."""

import json

import pytest

from rapid.config import specs
from rapid.config.params import Params, load
from rapid.grading.lean import LeanUnavailable
from rapid.stages.distill import distill
from rapid.stages.evaluate import evaluate
from rapid.stages.train import train


@pytest.fixture
def params(values, tmp_path, monkeypatch) -> Params:
    """The default's, on a machine on which no Lean can be had; the data are empty."""

    def refuse():
        raise LeanUnavailable("no npm here")

    monkeypatch.setattr("rapid.benchmarks.minif2f.ensure_lean", refuse)
    (tmp_path / "data.jsonl").touch()
    (tmp_path / "model").mkdir()
    return load(values)


def run(algorithm="pg", benchmark="minif2f"):
    return specs.Run(benchmark=benchmark, model="tiny-qwen2", algorithm=algorithm, seed=1)


def test_without_lean_nothing_is_trained(params, tmp_path):
    paths = tmp_path / "model", tmp_path / "data.jsonl", tmp_path / "run"
    (tmp_path / "run/snapshots/step9").mkdir(parents=True)  # of an earlier run
    summary = train(specs.train_spec(params, run()), *paths)
    assert (summary.status, summary.note) == ("unavailable", "no npm here")
    written = json.loads((tmp_path / "run/summary.json").read_text())
    assert written["runtime"] is None
    assert not any((tmp_path / "run" / name).exists() for name in ("model", "snapshots"))


def test_without_lean_nothing_is_evaluated(params, tmp_path):
    spec = specs.evaluate_spec(params, run("base"))
    found = evaluate(spec, tmp_path / "model", tmp_path / "data.jsonl", tmp_path)
    assert (found.status, found.note, found.pass_at) == ("unavailable", "no npm here", {})


def test_without_lean_nothing_is_distilled(params, tmp_path):
    spec = specs.distill_spec(params, "minif2f")
    distill(spec, tmp_path / "model", tmp_path / "data.jsonl", tmp_path / "out")
    assert (tmp_path / "out/samples.jsonl").read_text() == ""
    assert json.loads((tmp_path / "out/manifest.json").read_text())["unavailable"] == "no npm here"


def test_sft_without_demonstrations_says_so(params, tmp_path):
    spec = specs.train_spec(params, run("sft", "math"))
    summary = train(spec, tmp_path / "model", tmp_path / "data.jsonl", tmp_path / "run")
    assert summary.note == "the teacher solved none of the training problems"
