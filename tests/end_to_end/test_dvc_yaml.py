"""dvc.yaml lists the code and outputs of each stage; DVC edits params.yaml line by line."""

import re
from functools import reduce

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from rapid.artifacts.layout import PHASES
from rapid.config.jobs import list_jobs
from rapid.config.params import load
from tests.conftest import ROOT


def read_stages() -> dict:
    return yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def test_every_stage_depends_on_all_parameters():
    """DVC compares only what a stage lists. Snakemake decides which jobs a change concerns."""
    for name, stage in read_stages().items():
        assert stage["params"] == [{"params.yaml": None}], name


def test_the_stages_are_those_of_the_pipeline():
    assert list(read_stages()) == list(PHASES)


def list_outputs(stage: dict) -> list[tuple[str, dict]]:
    """Return the paths of a stage's outputs, each with its options."""
    outputs = (*stage.get("outs", []), *stage.get("metrics", []))
    return [pair for out in outputs for pair in out.items()]


def test_the_outputs_of_every_stage_persist():
    for name, stage in read_stages().items():
        assert all(options == {"persist": True} for _, options in list_outputs(stage)), name


def test_every_job_lies_in_an_output_of_its_stage(values):
    paths = {
        name: [path for path, _ in list_outputs(stage)] for name, stage in read_stages().items()
    }
    for job in list_jobs(load(values)):
        assert any(f"{job.manifest}/".startswith(f"{path}/") for path in paths[job.stage])


@pytest.mark.parametrize("compute", [{}, {"processes": 2, "device": "gpu", "sampler": "vllm"}])
def test_a_stage_depends_on_the_code_behind_its_jobs(values, compute):
    """Otherwise DVC skips the stage when its code has changed."""
    values["compute"] |= compute
    for job in list_jobs(load(values)):
        listed_dependencies = tuple(read_stages()[job.stage].get("deps", ()))
        unlisted_files = [
            file
            for file in job.spec.hash_code_files()
            if not f"{file}/".startswith(listed_dependencies)
        ]
        assert not unlisted_files, f"{job.stage} of dvc.yaml: deps lack {unlisted_files}"


def test_named_models_are_models_of_runs(values):
    dvc = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    for key in re.findall(r"\$\{(.*?)\}", dvc):
        dvc = dvc.replace(f"${{{key}}}", str(reduce(dict.get, key.split("."), values)))
    trained = {f"{job.folder}/model" for job in list_jobs(load(values)) if job.stage == "train"}
    artifacts = yaml.safe_load(dvc)["artifacts"]
    assert artifacts and {artifact["path"] for artifact in artifacts.values()} <= trained


@pytest.mark.parametrize(
    ("override", "changes"),
    [
        ("rapid.H=4", []),
        ("rapid.H=16", [("H: 4", "H: 16")]),
        ("training.learning_rate=0.002", [("learning_rate: 1.0e-4", "learning_rate: 0.002")]),
        ("tables.main.model=teacher", [("model: tiny-qwen2", "model: teacher")]),
        ("tables.main.seeds=[1,2,7]", [("- 3", "- 7")]),
    ],
)
def test_dvc_changes_the_line_of_a_parameter_and_no_other(tmp_path, override, changes):
    """DVC rewrites the file, and has its own style of lists."""
    path, text = tmp_path / "params.yaml", (ROOT / "params.yaml").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    apply_overrides(path, [override])
    lines = (text.splitlines(), path.read_text(encoding="utf-8").splitlines())
    differing = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    assert [tuple(line.split("#")[0].strip() for line in pair) for pair in differing] == changes
