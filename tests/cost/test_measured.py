"""Rates that are fitted to runs, and predictions of other runs from them."""

import json

import numpy as np
import pytest

from rapid.artifacts.files import BadInput
from rapid.artifacts.manifests import hash_files
from rapid.config.params import load
from rapid.cost.estimates import Estimator
from rapid.cost.expected import DEFAULT_VERDICT_SECONDS
from rapid.cost.measured import fit_rates, read_runs
from rapid.cost.memory import set_micro_batch
from rapid.cost.shapes import load_shapes
from rapid.cost.work import count_train_work
from tests.cost.conftest import EXPECTED, USER, TimeLaw, change_compute, make_spec, write_run

ALGORITHMS = ["sft", "pg", "grpo", "naive-grpo", "dapo", "rapid-H2", "rapid-H4", "rapid-H16"]


def write_and_read_runs(root, params, algorithms=ALGORITHMS, seeds=(1,), **options):
    """Write a run of each algorithm and seed, and read all runs."""
    for seed in seeds:
        for name in algorithms:
            write_run(root, params, make_spec(params, name, seed=seed), **options)
    return read_runs(root, params)


def fit_machine(runs, params):
    """Return the machine with rates fitted to runs."""
    return fit_rates(runs, load_shapes(params, {}), USER)


def predict(runs, fitted_runs, params):
    """Predict the seconds of each run from its spec and number of steps, with fitted rates."""
    machine = fit_machine(fitted_runs, params)
    estimator = Estimator(params, machine, USER)

    def runtime(run):
        expected = estimator.expect(run.benchmark, run.model)
        return machine.estimate_runtime(count_train_work(run.spec, run.optimizer_steps, expected))

    return runs.apply(runtime, axis=1)


def test_predictions_of_the_fitted_runs_equal_their_times(params, tmp_path):
    """The totals of RL and of SFT agree, since each of their phases has one fitted factor."""
    runs = write_and_read_runs(tmp_path, params)
    predicted = predict(runs, runs, params)
    for is_sft in (True, False):
        is_selected = runs.is_supervised == is_sft
        total = runs.total[is_selected].sum()
        assert predicted[is_selected].sum() == pytest.approx(total, rel=1e-4)


def test_lengths_signal_and_verdict_times_are_taken_from_runs(params, tmp_path):
    machine = fit_machine(write_and_read_runs(tmp_path, params), params)
    expected = Estimator(params, machine, USER).expect("math", "tiny-qwen2")
    for name in ("length", "signal", "rewarded", "kept"):
        assert getattr(expected, name) == pytest.approx(getattr(EXPECTED, name)), name
    assert machine.verdict_seconds["math"] == pytest.approx(TimeLaw().verdict, rel=0.01)


def test_memory_beyond_the_models_is_base_memory(params, tmp_path):
    machine = fit_machine(
        write_and_read_runs(tmp_path, params, ["pg"], peak_memory_mb=900.0), params
    )
    model_bytes = Estimator(params, machine, USER).estimate_memory(make_spec(params, "pg")).total
    assert machine.base_memory == pytest.approx(900e6 - model_bytes)
    assert fit_machine(write_and_read_runs(tmp_path, params, ["pg"]), params).base_memory == 0


@pytest.mark.parametrize(
    ("compute", "verdict"),
    [
        ({"processes": 2}, 2e-3),
        ({"threads": 2}, DEFAULT_VERDICT_SECONDS["math"]),
        # Naive GRPO samples from a server. Then it grades, in two threads.
        ({"threads": 2, "device": "gpu", "sampler": "vllm"}, 2 * 2e-3),
    ],
)
def test_verdict_time_is_per_thread_and_unknown_when_graded_while_sampling(
    params, tmp_path, compute, verdict
):
    runs = write_and_read_runs(tmp_path, change_compute(params, **compute))
    assert fit_machine(runs, params).verdict_seconds["math"] == pytest.approx(verdict, rel=0.01)


def test_length_without_rl_runs_is_a_share_of_the_limit(params, tmp_path):
    write_run(tmp_path, params, make_spec(params, "sft", "mbpp_plus"))
    machine = fit_machine(write_and_read_runs(tmp_path, params), params)
    expected = Estimator(params, machine).expect("mbpp_plus", "tiny-qwen2")
    assert (expected.limit, expected.length) == (80, 20)


@pytest.mark.parametrize("draw", range(5))
def test_total_of_other_runs_is_predicted_within_a_quarter(params, tmp_path, draw):
    """Rates are fitted to three runs of one seed with up to 10 % of noise."""
    noise = np.random.default_rng(draw)
    runs = write_and_read_runs(tmp_path, params, seeds=(1, 2, 3), noise=noise)
    is_fitted = (runs.seed == 1) & runs.algorithm.isin(["sft", "pg", "rapid-H4"])
    predicted = predict(runs[~is_fitted], runs[is_fitted], params)
    assert 0.75 < predicted.sum() / runs.total[~is_fitted].sum() < 1.25


def test_recorded_spec_of_a_run_is_used_and_not_the_current_parameters(params, values, tmp_path):
    write_and_read_runs(tmp_path, params, ["rapid-H4"])
    values["training"]["epochs"], values["benchmarks"]["math"]["n_step"] = 5, 8
    (spec,) = read_runs(tmp_path, load(values)).spec
    assert (spec.n_step, spec.training.epochs) == (4, 1)


@pytest.mark.parametrize("algorithm", ["pg", "sft"])
def test_model_without_runs_takes_factors_and_lengths_of_all_runs(params, tmp_path, algorithm):
    machine = fit_machine(write_and_read_runs(tmp_path, params), params)
    estimator, models = Estimator(params, machine, USER), ["tiny-qwen2-wide", "tiny-qwen2"]
    assert estimator.expect("math", models[0]) == estimator.expect("math", models[1])
    wide, narrow = (
        machine.estimate_seconds(
            count_train_work(make_spec(params, algorithm, model=model), 64, EXPECTED)
        )
        for model in models
    )
    assert wide["backpropagation"] > narrow["backpropagation"]
    assert wide["other"] == narrow["other"]  # SFT has no such phase


def test_micro_batch_of_a_run_with_auto_is_the_recorded_size(params, tmp_path):
    auto = params.training.model_copy(update={"micro_batch": "auto"})
    spec = make_spec(params.model_copy(update={"training": auto}), "pg")
    write_run(tmp_path, params, set_micro_batch(spec, 2), pass_completions=2)
    (manifest,) = tmp_path.rglob("manifest.json")
    values = json.loads(manifest.read_text())
    values["spec"] = spec.model_dump(mode="json")
    manifest.write_text(json.dumps(values))
    assert read_runs(tmp_path, params).spec[0].training.micro_batch == 2


def test_runs_without_a_runtime_are_left_out(params, tmp_path):
    write_run(tmp_path, params, make_spec(params, "grpo"), runtime=None, note="no grader")
    assert list(write_and_read_runs(tmp_path, params, ["pg"]).algorithm) == ["pg"]


def test_runs_of_two_machines_are_refused(params, tmp_path):
    write_and_read_runs(tmp_path, params, ["pg"])
    with pytest.raises(BadInput, match="2 machines"):
        write_and_read_runs(tmp_path, params, ["grpo"], hardware="another machine")


def test_supervised_runs_alone_are_not_enough(params, tmp_path):
    with pytest.raises(BadInput, match="runs are of sft, so the speed of sampling is unknown"):
        fit_machine(write_and_read_runs(tmp_path, params, ["sft"]), params)


def test_invalid_run_files_are_refused(params, tmp_path):
    write_and_read_runs(tmp_path, params, ["pg"])
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
