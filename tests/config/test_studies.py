"""Studies with a model, a sweep and hypotheses."""

import math

import pytest

from rapid.config.params import BadParams, load, load_files
from rapid.config.specs import list_study_runs
from tests.conftest import ROOT


def test_parameters_are_the_same_after_json():
    """Reports get them so."""
    study = load_files(ROOT / "params.yaml", ROOT / "experiments/baseline.yaml")
    again = load_files(study.model_dump_json())
    assert again.studies == study.studies
    assert again.studies.hypotheses["gap"].below == math.inf


def test_studies_of_another_model_are_planned(values):
    study = {"benchmark": "math", "model": "teacher", "algorithms": ["pg", "rapid-H2"]}
    values["studies"] = {"seeds": [4], "compared": {"own": study}}
    runs = {(run.model, run.algorithm, run.seed) for run in list_study_runs(load(values))}
    assert runs == {("teacher", "pg", 4), ("teacher", "rapid-H2", 4)}


def test_study_that_is_null_is_left_out(values):
    values["studies"]["compared"]["eta"] = None
    assert "eta" not in load(values).studies.compared


STUDY = {"benchmark": "math", "algorithms": ["rapid-H2", "rapid-H4"]}
HYPOTHESIS = {"claim": "it is", "studies": ["own"], "contrast": {"rapid-H2": 1}, "above": 0}


@pytest.mark.parametrize(
    ("key", "changes", "message"),
    [
        ("hypotheses.h", {"studies": ["other"]}, "studies: 'other' is invalid: must be one of"),
        ("hypotheses.h", {"contrast": {"pg": 1}}, "contrast: 'pg' is invalid"),
        ("hypotheses.h", {"above": 0.1, "below": 0.1}, "above: 0.1 is invalid"),
        ("hypotheses.h", {"metric": "reward"}, "metric: 'reward'"),
        (
            "compared.own",
            {"sweep": "epsilon"},
            "sweep: 'epsilon' is invalid: must be a parameter of rapid-H2",
        ),
        ("compared.own", {"model": "other"}, "model: 'other' is invalid"),
    ],
)
def test_wrong_studies_and_hypotheses_are_refused(values, key, changes, message):
    section, name = key.split(".")
    values["studies"] = {"compared": {"own": STUDY}, "hypotheses": {"h": HYPOTHESIS}}
    values["studies"][section] = {name: values["studies"][section][name] | changes}
    with pytest.raises(BadParams) as error:
        load(values)
    assert f"studies.{key}.{message}" in str(error.value)
