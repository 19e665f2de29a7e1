"""Rates from runs, and predictions of runs that they were not fitted to."""

import json

import numpy as np
import pytest

from rapid.artifacts.files import BadInput
from rapid.artifacts.manifests import hash_files
from rapid.config.params import load
from rapid.cost.estimates import Estimator
from rapid.cost.expected import VERDICTS
from rapid.cost.measured import fit, read_runs
from rapid.cost.memory import with_passes
from rapid.cost.shapes import load_shapes
from rapid.cost.work import train_work
from tests.cost.conftest import EXPECTED, USER, Law, computing, spec_of, write_run

ALGORITHMS = ["sft", "pg", "grpo", "naive-grpo", "dapo", "rapid-H2", "rapid-H4", "rapid-H16"]


def write_runs(root, params, algorithms=ALGORITHMS, seeds=(1,), **options):
    for seed in seeds:
        for name in algorithms:
            write_run(root, params, spec_of(params, name, seed=seed), **options)
    return read_runs(root, params)


def fit_to(runs, params):
    return fit(runs, load_shapes(params, {}), USER)


def predict(runs, fitted, params):
    """Return seconds of each run, of which only its spec and number of steps are looked at."""
    machine = fit_to(fitted, params)
    estimator = Estimator(params, machine, USER)

    def runtime(run):
        expected = estimator.expect(run.benchmark, run.model)
        return machine.runtime(train_work(run.spec, run.optimizer_steps, expected))

    return runs.apply(runtime, axis=1)


def test_the_fitted_runs_take_what_they_took(params, tmp_path):
    """All of them together: each phase of RL has one factor, and each of imitation."""
    runs = write_runs(tmp_path, params)
    predicted = predict(runs, runs, params)
    for imitates in (True, False):
        of_loop = runs.imitates == imitates
        assert predicted[of_loop].sum() == pytest.approx(runs.total[of_loop].sum(), rel=1e-4)


def test_runs_show_what_nobody_knows_beforehand(params, tmp_path):
    machine = fit_to(write_runs(tmp_path, params), params)
    expected = Estimator(params, machine, USER).expect("math", "tiny-qwen2")
    for name in ("length", "signal", "rewarded", "kept"):
        assert getattr(expected, name) == pytest.approx(getattr(EXPECTED, name)), name
    assert machine.verdict["math"] == pytest.approx(Law().verdict, rel=0.01)


def test_a_process_holds_more_than_its_model_explains(params, tmp_path):
    machine = fit_to(write_runs(tmp_path, params, ["pg"], peak_memory_mb=900.0), params)
    explained = Estimator(params, machine, USER).held(spec_of(params, "pg")).total
    assert machine.base_memory == pytest.approx(900e6 - explained)
    assert fit_to(write_runs(tmp_path, params, ["pg"]), params).base_memory == 0


@pytest.mark.parametrize(
    ("compute", "verdict"), [({"processes": 2}, 2e-3), ({"threads": 2}, VERDICTS["math"])]
)
def test_a_verdict_is_of_one_process_and_not_measured_beside_sampling(
    params, tmp_path, compute, verdict
):
    runs = write_runs(tmp_path, computing(params, **compute))
    assert fit_to(runs, params).verdict["math"] == pytest.approx(verdict, rel=0.01)


def test_where_no_rl_run_shows_a_length_it_is_a_share_of_the_limit(params, tmp_path):
    write_run(tmp_path, params, spec_of(params, "sft", "mbpp_plus"))
    machine = fit_to(write_runs(tmp_path, params), params)
    expected = Estimator(params, machine).expect("mbpp_plus", "tiny-qwen2")
    assert (expected.limit, expected.length) == (80, 20)


@pytest.mark.parametrize("draw", range(5))
def test_the_total_of_other_runs_is_within_a_quarter(params, tmp_path, draw):
    """Fitted to three runs of one seed that each are up to 10 % faster or slower."""
    noise = np.random.default_rng(draw)
    runs = write_runs(tmp_path, params, seeds=(1, 2, 3), noise=noise)
    is_fitted = (runs.seed == 1) & runs.algorithm.isin(["sft", "pg", "rapid-H4"])
    predicted = predict(runs[~is_fitted], runs[is_fitted], params)
    assert 0.75 < predicted.sum() / runs.total[~is_fitted].sum() < 1.25


def test_the_spec_of_a_run_counts_and_not_todays_parameters(params, values, tmp_path):
    write_runs(tmp_path, params, ["rapid-H4"])
    values["training"]["epochs"], values["benchmarks"]["math"]["n_step"] = 5, 8
    (spec,) = read_runs(tmp_path, load(values)).spec
    assert (spec.n_step, spec.training.epochs) == (4, 1)


@pytest.mark.parametrize("algorithm", ["pg", "sft"])
def test_a_model_without_runs_takes_the_factors_and_lengths_of_all(params, tmp_path, algorithm):
    machine = fit_to(write_runs(tmp_path, params), params)
    estimator, models = Estimator(params, machine, USER), ["tiny-qwen2-wide", "tiny-qwen2"]
    assert estimator.expect("math", models[0]) == estimator.expect("math", models[1])
    wide, narrow = (
        machine.seconds(train_work(spec_of(params, algorithm, model=model), 64, EXPECTED))
        for model in models
    )
    assert wide["backpropagation"] > narrow["backpropagation"]
    assert wide["other"] == narrow["other"]  # none in imitation


def test_a_run_with_auto_has_the_micro_batch_that_it_found(params, tmp_path):
    auto = params.training.model_copy(update={"micro_batch": "auto"})
    spec = spec_of(params.model_copy(update={"training": auto}), "pg")
    write_run(tmp_path, params, with_passes(spec, 2), pass_completions=2)
    (manifest,) = tmp_path.rglob("manifest.json")
    values = json.loads(manifest.read_text())
    values["spec"] = spec.model_dump(mode="json")
    manifest.write_text(json.dumps(values))
    assert read_runs(tmp_path, params).spec[0].training.micro_batch == 2


def test_runs_without_a_runtime_are_left_out(params, tmp_path):
    write_run(tmp_path, params, spec_of(params, "grpo"), runtime=None, note="no grader")
    assert list(write_runs(tmp_path, params, ["pg"]).algorithm) == ["pg"]


def test_runs_of_two_machines_are_refused(params, tmp_path):
    write_runs(tmp_path, params, ["pg"])
    with pytest.raises(BadInput, match="2 machines"):
        write_runs(tmp_path, params, ["grpo"], hardware="another machine")


def test_supervised_runs_alone_are_not_enough(params, tmp_path):
    with pytest.raises(BadInput, match="the speed of sampling is unknown"):
        fit_to(write_runs(tmp_path, params, ["sft"]), params)


def test_files_of_another_form_are_refused(params, tmp_path):
    write_runs(tmp_path, params, ["pg"])
    (path,) = tmp_path.rglob("manifest.json")
    manifest = json.loads(path.read_text())
    del manifest["spec"]["compute"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match=r"manifest\.json: spec\.compute: Field required"):
        read_runs(tmp_path, params)
    path.with_name("summary.json").write_text('{"benchmark": "math"}')
    path.write_text(json.dumps({"spec": {}, "inputs": {}, "outputs": hash_files(path.parent)}))
    with pytest.raises(BadInput, match=r"summary\.json: model: Field required"):
        read_runs(tmp_path, params)
