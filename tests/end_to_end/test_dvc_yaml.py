"""What DVC reads: dvc.yaml's stages list the sections of params.yaml that reach their jobs, and no
others; what it writes: params.yaml, by `dvc exp run -S`."""

import copy
import re
from collections.abc import Iterator
from functools import reduce

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from rapid.artifacts.code import Spec
from rapid.artifacts.layout import PHASES
from rapid.config.jobs import jobs
from rapid.config.params import BadParams, Params, load
from tests.conftest import ROOT


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
            return [value[:-1], value[1:], [*value, 3], [*value, 32], [*value, "sft"]]
    return ["hub", "both", "math", "tiny-llama", "teacher", "llama", "tiny-qwen2", "sft"]


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
            if isinstance(original, int | float):  # another number would reach no others
                break


def specs_by_stage(params: Params) -> dict[str, dict]:
    """The spec of each job by its folder, for each stage."""
    made: dict[str, dict] = {stage: {} for stage in PHASES}
    for job in jobs(params):
        made[job.stage][job.folder] = job.spec
    return made


def reached(values: dict) -> Iterator[tuple[str, str]]:
    """Each stage whose jobs another value changes, with the section that the value is in."""
    before = specs_by_stage(load(values))
    for key in list(leaves(values)):
        for params in changed(values, key):
            after = specs_by_stage(params)
            yield from (
                (stage, key.split(".")[0]) for stage in PHASES if after[stage] != before[stage]
            )


def test_a_stage_lists_the_sections_that_reach_its_jobs_and_no_others(values, monkeypatch):
    """Some reach them only where the tables have no sft, or not the H that is compared."""
    monkeypatch.setattr(Spec, "with_code", lambda self: self)  # which no parameter changes
    for table in ("main", "families"):
        values["tables"][table]["seeds"] = [1]  # the others have jobs of the same kinds
    other = copy.deepcopy(values)
    other["rapid"]["H"] = 1
    other["tables"]["main"]["algorithms"] = ["pg"]
    other["tables"]["families"]["algorithms"] = ["pg"]
    found = {*reached(values), *reached(other)}
    wrong = {}
    for stage, listed in stages().items():
        expected = [key for key in values if (stage, key) in found]
        if listed["params"] != expected:
            wrong[stage] = f"params: [{', '.join(expected)}]"
    assert not wrong, f"dvc.yaml should have {wrong}"


def test_stages_are_those_of_the_pipeline():
    assert list(stages()) == list(PHASES)


def outputs(stage: dict) -> list[tuple[str, dict]]:
    """Return the paths of a stage's outputs, each with its options."""
    listed = (*stage.get("outs", []), *stage.get("metrics", []))
    return [pair for out in listed for pair in out.items()]


def test_no_path_is_the_output_of_two_stages():
    paths = [path for stage in stages().values() for path, _ in outputs(stage)]
    assert len(paths) == len(set(paths))
    assert not any(one != two and one.startswith(f"{two}/") for one in paths for two in paths)


def test_no_stage_loses_its_outputs_before_it_runs():
    for name, stage in stages().items():
        assert all(options == {"persist": True} for _, options in outputs(stage)), name


def test_every_job_lies_in_an_output_of_its_stage(values):
    paths = {name: [path for path, _ in outputs(stage)] for name, stage in stages().items()}
    for job in jobs(load(values)):
        assert any(f"{job.manifest}/".startswith(f"{path}/") for path in paths[job.stage])


def test_a_stage_depends_on_the_code_behind_its_jobs(values):
    """Otherwise DVC skips it when the code changed. Folders of other code cost a look only."""
    for job in jobs(load(values)):
        listed = tuple(stages()[job.stage].get("deps", ()))
        behind = [file for file in job.spec.files() if not f"{file}/".startswith(listed)]
        assert not behind, f"{job.stage} of dvc.yaml: deps lack {behind}"


def test_named_models_are_those_of_runs(values):
    dvc = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    for key in re.findall(r"\$\{(.*?)\}", dvc):
        dvc = dvc.replace(f"${{{key}}}", str(reduce(dict.get, key.split("."), values)))
    trained = {f"{job.folder}/model" for job in jobs(load(values)) if job.stage == "train"}
    artifacts = yaml.safe_load(dvc)["artifacts"]
    assert artifacts and {one["path"] for one in artifacts.values()} <= trained


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
    """DVC writes the whole file anew, and lists in a style of its own."""
    path, text = tmp_path / "params.yaml", (ROOT / "params.yaml").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    apply_overrides(path, [override])
    lines = (text.splitlines(), path.read_text(encoding="utf-8").splitlines())
    differing = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    assert [tuple(line.split("#")[0].strip() for line in pair) for pair in differing] == changes
