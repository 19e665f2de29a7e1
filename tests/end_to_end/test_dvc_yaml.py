"""dvc.yaml: each stage lists the parameters that reach it, and no others."""

import copy

import pytest
import yaml

from rapid.config.jobs import STAGES, jobs
from rapid.config.params import BadParams, load
from tests.conftest import ROOT

# The report's spec is all of params.yaml; what else it needs comes through its dependencies.
STAGES_WITH_NARROW_SPECS = [stage for stage in STAGES if stage != "report"]


def stages() -> dict:
    return yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def leaves(values: dict, prefix: str = ""):
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from leaves(value, f"{path}.")
        else:
            yield path


def other(value):
    """Values to try in place of this one, so that the job's spec could change."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value * 2, value * 4]
        case float():
            return [value / 2]
        case list():
            return [value[:-1], value[1:], [*value, 3], [*value, 32]]
    return ["hub", "both", "math", "tiny-llama", "teacher", "llama", "tiny-qwen2"]


def changed(values: dict, key: str):
    """Parameters in which this key has another valid value."""
    *path, last = key.split(".")
    section = values
    for part in path:
        section = section[part]
    original = section[last]
    for value in other(original):
        if value != original:
            section[last] = value
            try:
                yield load(values)
            except BadParams:
                continue
            finally:
                section[last] = original


def specs_by_stage(params) -> dict[str, list]:
    made = jobs(params)
    return {
        stage: [(job.folder, job.spec.model_dump()) for job in made if job.stage == stage]
        for stage in STAGES
    }


def test_stages_are_those_of_the_pipeline():
    assert list(stages()) == list(STAGES)


@pytest.mark.parametrize("stage", STAGES_WITH_NARROW_SPECS)
def test_a_stage_lists_every_key_that_reaches_its_jobs(values, stage):
    listed = stages()[stage]["params"]
    before = specs_by_stage(load(values))[stage]
    for key in list(leaves(values)):
        if any(key == name or key.startswith(f"{name}.") for name in listed):
            continue
        for params in changed(values, key):
            assert specs_by_stage(params)[stage] == before, f"{key} reaches {stage}, unlisted"


@pytest.mark.parametrize("stage", STAGES_WITH_NARROW_SPECS)
def test_a_stage_lists_no_key_that_does_not_reach_its_jobs(values, stage):
    """Some reach them only where Table 1 has no sft, or not the H that is compared."""
    other = copy.deepcopy(values)
    other["rapid"]["H"] = 1
    other["tables"]["main"]["algorithms"] = ["pg"]
    for name in stages()[stage]["params"]:
        assert any(reaches(name, start, stage) for start in (values, other)), name


def reaches(name: str, values: dict, stage: str) -> bool:
    """Whether another value of the key, or of one below it, changes the stage's jobs."""
    before = specs_by_stage(load(values))[stage]
    return any(
        specs_by_stage(params)[stage] != before
        for key in list(leaves(values))
        if key == name or key.startswith(f"{name}.")
        for params in changed(values, key)
    )


def test_no_path_is_the_output_of_two_stages():
    paths = [
        path
        for stage in stages().values()
        for out in (*stage.get("outs", []), *stage.get("metrics", []))
        for path in out
    ]
    assert len(paths) == len(set(paths))
    assert not any(one != two and one.startswith(f"{two}/") for one in paths for two in paths)


def test_no_stage_loses_its_outputs_before_it_runs():
    for name, stage in stages().items():
        for out in (*stage.get("outs", []), *stage.get("metrics", [])):
            [options] = out.values()
            assert options == {"persist": True}, name


def test_every_job_lies_in_an_output_of_its_stage(values):
    outputs = {
        name: [path for out in (*stage.get("outs", []), *stage.get("metrics", [])) for path in out]
        for name, stage in stages().items()
    }
    for job in jobs(load(values)):
        assert any(f"{job.manifest}/".startswith(f"{path}/") for path in outputs[job.stage])


def test_a_stage_depends_on_the_code_behind_its_jobs(values):
    """Otherwise DVC skips it when the code changed. Folders of other code cost a look only."""
    for job in jobs(load(values)):
        listed = tuple(stages()[job.stage].get("deps", ()))
        behind = [file for file in job.spec.files() if not f"{file}/".startswith(listed)]
        assert not behind, f"{job.stage} of dvc.yaml: deps lack {behind}"
