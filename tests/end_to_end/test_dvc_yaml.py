"""dvc.yaml lists the parameters, code and outputs of each stage; DVC edits params.yaml line by line."""

import copy
import re
from collections.abc import Iterator
from functools import reduce

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from rapid.artifacts.code import Spec
from rapid.artifacts.layout import PHASES
from rapid.config.jobs import list_jobs
from rapid.config.params import BadParams, Params, load
from tests.conftest import ROOT


def read_stages() -> dict:
    return yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def walk_keys(values: dict, prefix: str = ""):
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from walk_keys(value, f"{path}.")
        else:
            yield path


def propose_values(value) -> list:
    """Return values to try in place of this one."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value * 2, value * 4]
        case float():
            return [value / 2]
        case list():
            return [value[:-1], value[1:], [*value, 3], [*value, 32], [*value, "sft"]]
    return ["hub", "both", "math", "tiny-llama", "teacher", "llama", "tiny-qwen2", "sft", "icml"]


def change_value(values: dict, key: str) -> Iterator[Params]:
    """Yield parameters in which this key has another valid value."""
    *path, name = key.split(".")
    section = values
    for part in path:
        section = section[part]
    original = section[name]
    for value in propose_values(original):
        if value != original:
            section[name] = value
            try:
                yield load(values)
            except BadParams:
                continue
            finally:
                section[name] = original
            if isinstance(original, int | float):  # one other number is enough
                break


def list_specs_by_stage(params: Params) -> dict[str, dict]:
    """Return the spec of each job by stage and folder."""
    specs: dict[str, dict] = {stage: {} for stage in PHASES}
    for job in list_jobs(params):
        specs[job.stage][job.folder] = job.spec
    return specs


def find_reached_stages(values: dict) -> Iterator[tuple[str, str]]:
    """Yield each stage whose jobs a value changes, with the section of the value."""
    before = list_specs_by_stage(load(values))
    for key in list(walk_keys(values)):
        for params in change_value(values, key):
            after = list_specs_by_stage(params)
            yield from (
                (stage, key.split(".")[0]) for stage in PHASES if after[stage] != before[stage]
            )


def test_a_stage_lists_the_sections_that_reach_its_jobs_and_no_others(values, monkeypatch):
    """Some sections reach jobs only if the tables have no sft, or an H that DVC does not compare."""
    # No parameter changes the code.
    monkeypatch.setattr(Spec, "with_code_digest", lambda self: self)
    for table in ("main", "families"):
        values["tables"][table]["seeds"] = [1]  # other seeds have jobs of the same kinds
    without_sft = copy.deepcopy(values)
    without_sft["rapid"]["H"] = 1
    without_sft["tables"]["main"]["algorithms"] = ["pg"]
    without_sft["tables"]["families"]["algorithms"] = ["pg"]
    reached = {*find_reached_stages(values), *find_reached_stages(without_sft)}
    corrections = {}
    for stage, listed_stage in read_stages().items():
        expected = [key for key in values if (stage, key) in reached]
        if listed_stage["params"] != expected:
            corrections[stage] = f"params: [{', '.join(expected)}]"
    assert not corrections, f"dvc.yaml should have {corrections}"


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


def test_a_stage_depends_on_the_code_behind_its_jobs(values):
    """Otherwise DVC skips the stage when its code has changed."""
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
