"""Rates from runs, and predictions of runs that they were not fitted to."""

import json

import numpy as np
import pytest

from rapid.artifacts.files import BadInput
from rapid.artifacts.manifests import digests
from rapid.config.params import load
from rapid.cost.expected import VERDICTS
from rapid.cost.measured import check, fit, read_runs
from rapid.cost.shapes import shapes
from rapid.cost.work import train_work
from tests.cost.conftest import EXPECTED, Law, computing, spec_of, write_run

ALGORITHMS = ["sft", "pg", "grpo", "naive-grpo", "dapo", "rapid-H2", "rapid-H4", "rapid-H16"]


def made(root, params, algorithms=ALGORITHMS, seeds=(1,), noise=None, law=None, **changes):
    for seed in seeds:
        for name in algorithms:
            spec = spec_of(params, name, seed=seed)
            write_run(root, params, spec, law or Law(), noise, **changes)
    return read_runs(root, params)


def approx(**rates):
    return pytest.approx(rates, rel=0.02)


def rates_of(observed, params):
    return fit(observed, shapes(params, {}), EXPECTED).rates["tiny-qwen2"]


def test_rates_are_found_again(params, tmp_path):
    rates, law = rates_of(made(tmp_path, params), params), Law()
    assert rates == {
        "sampling": approx(decoding_steps=law.decoding, rows=law.row),
        "backpropagation": approx(steps=law.step, tokens=law.token),
        "other": approx(steps=law.loop, batches=law.batch),
        "sync": approx(batches=0.0),
        "imitation": approx(tokens=2 * law.token),
    }


def test_what_nobody_knows_beforehand_is_read_off_the_runs(params, tmp_path):
    measured = fit(made(tmp_path, params), shapes(params, {}), EXPECTED)
    seen = measured.seen("math", "tiny-qwen2")
    for name in ("length", "spread", "signal", "rewarded", "kept"):
        assert getattr(seen, name) == pytest.approx(getattr(EXPECTED, name), abs=1e-6), name
    assert measured.verdict["math"] == pytest.approx(Law().verdict, rel=0.01)
    assert measured.startup["math"] == pytest.approx(Law().startup)


@pytest.mark.parametrize(
    ("given", "verdict", "expected"),
    [({"processes": 2}, 2e-3, 2e-3), ({"threads": 2}, 1e-6, VERDICTS["math"])],
)
def test_a_verdict_is_of_one_process_and_not_told_beside_sampling(
    params, tmp_path, given, verdict, expected
):
    """Where it is graded beside sampling, and hardly waited for."""
    runs = made(tmp_path, computing(params, **given), law=Law(verdict=verdict))
    measured = fit(runs, shapes(params, {}), EXPECTED)
    assert measured.verdict["math"] == pytest.approx(expected, rel=0.01)


def test_a_grader_that_is_waited_for_graded_all_the_time(params, tmp_path):
    runs = made(tmp_path, computing(params, threads=2), ["pg", "dapo"], law=Law(verdict=1.0))
    seconds = sum(one.summary.runtime.grading + one.summary.runtime.sampling for one in runs)
    measured = fit(runs, shapes(params, {}), EXPECTED).verdict["math"]
    assert measured == pytest.approx(seconds / sum(one.summary.completions for one in runs))


def test_where_no_run_of_rl_tells_a_length_is_usual_for_the_benchmarks_own_limit(params, tmp_path):
    write_run(tmp_path, params, spec_of(params, "sft", "mbpp_plus"), Law())
    found = fit(made(tmp_path, params), shapes(params, {}), EXPECTED).seen(
        "mbpp_plus", "tiny-qwen2"
    )
    assert found.limit == params.benchmarks["mbpp_plus"].max_completion_length != EXPECTED.limit
    assert found.length / found.limit == pytest.approx(EXPECTED.length / EXPECTED.limit)


@pytest.mark.parametrize("draw", range(5))
def test_the_total_of_other_runs_is_within_a_quarter(params, tmp_path, draw):
    """Fitted to three runs of one seed that each are up to 10 % faster or slower."""
    noise = np.random.default_rng(draw)
    observed = made(tmp_path, params, seeds=(1, 2, 3), noise=noise)
    found = check(observed, shapes(params, {}), EXPECTED)
    assert len(found) == 3 * len(ALGORITHMS) - 3
    ratio = found.predicted.sum() / found.measured.sum()
    assert 0.75 < ratio < 1.25


def test_a_prediction_does_not_look_at_its_run(params, tmp_path):
    observed = made(tmp_path, params)
    before = check(observed, shapes(params, {}), EXPECTED).set_index("algorithm").loc["grpo"]
    odd = write_run(tmp_path, params, spec_of(params, "grpo"), Law(decoding=1.0), run=0.1)
    found = check(read_runs(tmp_path, params), shapes(params, {}), EXPECTED)
    after = found.set_index("algorithm").loc["grpo"]
    assert after.predicted == before.predicted
    assert after.measured == odd.runtime.total > 10 * before.measured


def test_two_batch_sizes_tell_what_a_batch_costs(params, tmp_path):
    rates = rates_of(made(tmp_path, params, ["pg", "rapid-H4"]), params)
    assert rates["sampling"] == approx(decoding_steps=Law().decoding, rows=Law().row)


def test_no_rate_is_negative(params, tmp_path):
    observed = made(tmp_path, params, noise=np.random.default_rng(3), law=Law(row=0.0, step=0.0))
    phases = rates_of(observed, params).values()
    assert all(rate >= 0 for phase in phases for rate in phase.values())


def test_what_a_run_was_told_counts_and_not_todays_parameters(params, values, tmp_path):
    made(tmp_path, params, ["rapid-H4"])
    values["training"]["epochs"], values["benchmarks"]["math"]["n_step"] = 5, 8
    (one,) = read_runs(tmp_path, load(values))
    assert (one.spec.n_step, one.spec.training.epochs) == (4, 1)


def test_a_manifest_of_another_form_is_refused(params, tmp_path):
    made(tmp_path, params, ["pg"])
    (path,) = tmp_path.rglob("manifest.json")
    manifest = json.loads(path.read_text())
    del manifest["spec"]["compute"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match=r"manifest\.json: spec\.compute: Field required"):
        read_runs(tmp_path, params)


def test_a_model_that_was_not_run_gets_the_rates_of_the_nearest(params, tmp_path):
    measured = fit(made(tmp_path, params), shapes(params, {}), EXPECTED)
    spec = spec_of(params, "pg", "mbpp_plus", model="tiny-gemma3")
    assert measured.seconds(train_work(spec, 64, EXPECTED)).runtime > 0
    assert any("tiny-gemma3 is taken to be as fast" in note for note in measured.notes())


def test_a_model_of_another_size_is_not_passed_over_in_silence(paper, params, tmp_path):
    both = params.model_copy(update={"models": {**params.models, **paper.models}})
    measured = fit(made(tmp_path, params), shapes(both, {}), EXPECTED)
    assert any("Qwen2.5-0.5B" in note and "times as large" in note for note in measured.notes())


def test_runs_that_were_not_trained_are_passed_over(params, tmp_path):
    made(tmp_path, params, ["pg"])
    write_run(tmp_path, params, spec_of(params, "grpo"), Law(), runtime=None, note="no grader")
    assert [one.spec.run.algorithm for one in read_runs(tmp_path, params)] == ["pg"]


def test_runs_of_two_machines_are_refused(params, tmp_path):
    made(tmp_path, params, ["pg"])
    with pytest.raises(BadInput, match="2 machines"):
        made(tmp_path, params, ["grpo"], hardware="another machine")


def test_a_summary_that_is_none_is_refused(params, tmp_path):
    (tmp_path / "summary.json").write_text('{"benchmark": "math"}')
    manifest = {"spec": {}, "inputs": {}, "outputs": digests(tmp_path)}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match=r"summary\.json: model: Field required"):
        read_runs(tmp_path, params)


def test_supervised_runs_alone_are_not_enough(params, tmp_path):
    with pytest.raises(BadInput, match="sampling was not measured"):
        rates_of(made(tmp_path, params, ["sft"]), params)


def test_nothing_left_to_predict_is_said(params, tmp_path):
    with pytest.raises(BadInput, match="0 others"):
        check(made(tmp_path, params, ["pg", "rapid-H4"]), shapes(params, {}), EXPECTED)
