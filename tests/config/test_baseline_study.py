"""The design of experiments/baseline.yaml, and docs/baseline.md about it."""

from itertools import product

import pytest

from rapid.algorithms.variant_names import parse_variant_name
from rapid.config.params import load_files
from rapid.config.specs import build_train_spec, list_study_runs
from tests.conftest import ROOT

SCALES = 0, 0.25, 0.5, 1


@pytest.fixture(scope="module")
def study():
    return load_files(ROOT / "params.yaml", ROOT / "experiments/baseline.yaml")


def list_settings(params, name):
    """Return the parameters of the runs of a study, as (H, scale, weighted, baseline)."""
    compared = params.studies.compared[name]
    settings = []
    for run in list_study_runs(params):
        if run.seed == 1 and run.algorithm in compared.algorithms:
            objective = build_train_spec(params, run).objective
            if not objective.positive_only and objective.equal_groups == "kept":
                scale, weighted = objective.baseline_scale, objective.weighted
                settings.append(
                    (parse_variant_name(run.algorithm).H, scale, weighted, objective.baseline)
                )
    return settings


@pytest.mark.parametrize("name", ["mbpp-plus", "math"])
def test_grid_has_each_scale_at_each_h_with_and_without_weights(study, name):
    """On-policy all weights are 1, so that only one of the two is run."""
    expected = {(h, scale, w, "group") for h, scale, w in product((8, 16), SCALES, (True, False))}
    expected |= {(1, scale, True, "group") for scale in SCALES}
    expected |= {(h, 1, w, "others") for h, w in product((8, 16), (True, False))}
    expected |= {(1, 1, True, "others")}
    assert set(list_settings(study, name)) == expected
    variants = {
        tuple(algorithm.split(",")[1:])
        for algorithm in study.studies.compared[name].algorithms
        if "positive" in algorithm or "equal" in algorithm
    }
    assert variants == {
        ("positive_only=true",),
        ("equal_groups=reinforced",),
        ("equal_groups=skipped", "baseline_scale=0"),
    }


def test_runs_differ_in_what_the_design_says_only(study):
    """All have the same batches, problems and learning rate, but for the studies of these."""
    for run in list_study_runs(study):
        spec = build_train_spec(study, run)
        assert (spec.n_step, spec.training.group_size, spec.training.epochs) == (4, 4, 1)
        if "learning_rate" not in run.algorithm:
            assert spec.training.learning_rate == 1e-4
    base = study.models["tiny-qwen2"]
    for name, compared in study.studies.compared.items():
        if name.endswith("-clean"):
            clean = study.models[compared.model]
            assert clean.error_rate == {compared.benchmark: 0}
            for key in ("architecture", "layers", "hidden"):
                assert getattr(clean, key) == getattr(base, key)


def test_page_names_each_hypothesis(study):
    page = (ROOT / "docs/baseline.md").read_text()
    for key in study.studies.hypotheses:
        assert f"`{key}`" in page


def test_quick_study_has_the_same_variants_and_hypotheses(study):
    names = ("baseline", "baseline-quick")
    files = [ROOT / "params.yaml", *(ROOT / f"experiments/{name}.yaml" for name in names)]
    quick = load_files(*files)
    assert quick.studies.hypotheses == study.studies.hypotheses
    assert quick.studies.compared == study.studies.compared
    assert (quick.name, len(quick.studies.seeds)) == ("baseline-quick", 1)
