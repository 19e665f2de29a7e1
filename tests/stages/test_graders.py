"""Stages that grade record the isolation of completions, and give no values without a grader."""

import json

import pytest

from rapid.artifacts.files import write_jsonl
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from rapid.config import specs
from rapid.config.params import load
from rapid.grading.code.sandbox import SandboxError
from rapid.grading.lean import LeanUnavailable
from rapid.stages.distill import distill
from rapid.stages.evaluate import evaluate
from rapid.stages.train import train

STAGES = {"distill": distill, "train": train, "evaluate": evaluate}


@pytest.fixture
def run_stage(values, toy_model, tmp_path):
    """A function that runs a stage on one problem and returns its manifest."""
    for benchmark in values["benchmarks"].values():
        benchmark |= {"max_completion_length": 4, "pass_at": [1]}
    values["evaluation"]["samples"] = values["sft"]["samples"] = 2

    def run(name: str, benchmark: str = "mbpp_plus", **grading) -> dict:
        [exercise] = draw_exercises(BENCHMARKS[benchmark], 0, {"train": 1})["train"]
        write_jsonl(tmp_path / "problems.jsonl", [exercise.problem])
        params = load(values | {"grading": grading})
        training = specs.Run(benchmark=benchmark, model="tiny-qwen2", algorithm="pg", seed=1)
        subject = benchmark if name == "distill" else training
        spec = getattr(specs, f"build_{name}_spec")(params, subject)
        STAGES[name](spec, toy_model, tmp_path / "problems.jsonl", tmp_path)
        return json.loads((tmp_path / "manifest.json").read_text())

    return run


@pytest.mark.parametrize("name", STAGES)
def test_manifest_describes_the_isolation_of_completions(run_stage, name):
    manifest = run_stage(name)
    assert "no file but Python's library" in manifest["isolation"]
    assert not any(manifest["spec"]["grading"].values())


@pytest.mark.parametrize("name", STAGES)
def test_stage_without_isolation_fails_before_sampling(run_stage, name, monkeypatch, tmp_path):
    """The stage must fail before it samples for hours."""
    monkeypatch.setattr("rapid.grading.code.sandbox.LAYERS", ())
    monkeypatch.setattr("rapid.sampling.sample", None)
    with pytest.raises(SandboxError, match=r"grading\.unsafe_sandbox"):
        run_stage(name)
    assert not (tmp_path / "manifest.json").exists()


def test_missing_isolation_is_in_the_manifest(run_stage, monkeypatch):
    monkeypatch.setattr("rapid.grading.code.sandbox.LAYERS", ())
    manifest = run_stage("evaluate", unsafe_sandbox=True)
    assert "NOT ISOLATED" in manifest["isolation"]
    assert manifest["spec"]["grading"]["unsafe_sandbox"]


UNAVAILABLE = {"status": "unavailable", "note": "no npm here"}


@pytest.mark.parametrize(
    ("name", "file", "fields"),
    [
        ("train", "summary.json", UNAVAILABLE | {"runtime": None, "optimizer_steps": 0}),
        ("evaluate", "evaluation.json", UNAVAILABLE | {"pass_at": {}, "scores": []}),
        ("distill", "samples.jsonl", None),
    ],
)
def test_stage_without_lean_gives_the_reason_and_deletes_earlier_results(
    run_stage, monkeypatch, tmp_path, name, file, fields
):
    def refuse():
        raise LeanUnavailable("no npm here")

    monkeypatch.setattr("rapid.benchmarks.minif2f.ensure_lean", refuse)
    (tmp_path / "snapshots/step9").mkdir(parents=True)
    (tmp_path / "curve.jsonl").touch()
    assert run_stage(name, "minif2f")["unavailable"] == "no npm here"
    document = json.loads((tmp_path / file).read_text() or "null")
    assert document == fields or {key: document[key] for key in fields} == fields
    left_over = {"train": "snapshots", "evaluate": "curve.jsonl"}
    assert not (tmp_path / left_over.get(name, "model")).exists()


def test_sft_without_demonstrations_gives_the_reason(values, tmp_path):
    run = specs.Run(benchmark="math", model="tiny-qwen2", algorithm="sft", seed=1)
    for folder in ("model", "run"):
        (tmp_path / folder).mkdir()
    (tmp_path / "samples.jsonl").touch()
    spec = specs.build_train_spec(load(values), run)
    summary = train(spec, tmp_path / "model", tmp_path / "samples.jsonl", tmp_path / "run")
    assert summary.note == "the teacher solved none of the training problems"
