"""Every stage that grades says which walls stood, and without walls it does not begin."""

import json

import pytest

from rapid.artifacts.files import write_jsonl
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import make
from rapid.config import specs
from rapid.config.params import load
from rapid.grading.code.sandbox import SandboxError
from rapid.stages.distill import distill
from rapid.stages.evaluate import evaluate
from rapid.stages.train import train

STAGES = {"distill": distill, "train": train, "evaluate": evaluate}


@pytest.fixture
def stage(values, toy_model, tmp_path):
    """Runs a stage on one problem; its manifest."""
    [exercise] = make(BENCHMARKS["mbpp_plus"], 0, {"train": 1})["train"]
    data = tmp_path / "problems.jsonl"
    write_jsonl(data, [exercise.problem])
    values["benchmarks"]["mbpp_plus"] |= {"max_completion_length": 4, "pass_at": [1]}
    values["evaluation"]["samples"] = values["sft"]["samples"] = 2

    def stage(name: str, **grading) -> dict:
        params = load(values | {"grading": grading})
        run = specs.Run(benchmark="mbpp_plus", model="tiny-qwen2", algorithm="pg", seed=1)
        spec = getattr(specs, f"{name}_spec")(params, run.benchmark if name == "distill" else run)
        STAGES[name](spec, toy_model, data, tmp_path)
        return json.loads((tmp_path / "manifest.json").read_text())

    return stage


@pytest.mark.parametrize("name", STAGES)
def test_the_manifest_says_which_walls_stood(stage, name):
    manifest = stage(name)
    assert "no file but Python's library" in manifest["walls"]
    assert not any(manifest["spec"]["grading"].values())


@pytest.mark.parametrize("name", STAGES)
def test_without_walls_no_stage_grades(stage, name, monkeypatch, tmp_path):
    """Nor samples: hours could go by before it fails."""
    monkeypatch.setattr("rapid.grading.code.sandbox.LAYERS", ())
    monkeypatch.setattr("rapid.sampling.sample", None)
    with pytest.raises(SandboxError, match=r"grading\.unsafe_sandbox"):
        stage(name)
    assert not (tmp_path / "manifest.json").exists()


def test_waived_walls_are_in_the_manifest(stage, monkeypatch):
    monkeypatch.setattr("rapid.grading.code.sandbox.LAYERS", ())
    manifest = stage("evaluate", unsafe_sandbox=True)
    assert "NOT WALLED OFF" in manifest["walls"]
    assert manifest["spec"]["grading"]["unsafe_sandbox"]
