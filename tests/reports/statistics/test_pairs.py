"""Comparison of algorithms by problem and seed, from files."""

from functools import partial

import pandas as pd
import pytest
from scipy import stats

from rapid.artifacts.evaluations import ProblemScore
from reports.collect import collect_runs
from reports.statistics import pairs
from tests.reports.conftest import make_run

make_mbpp_run = partial(make_run, benchmark="mbpp_plus")


def select_runs(params, runs, algorithm):
    frame = collect_runs(params, runs.root)
    of_main_model = (frame.benchmark == "mbpp_plus") & (frame.model == "tiny_qwen")
    return frame[of_main_model & (frame.algorithm == algorithm)]


def test_difference_is_the_mean_over_common_problems_and_seeds(params, runs):
    runs.write_scores(make_mbpp_run("pg", 0), [8, 0, 4])
    runs.write_scores(make_mbpp_run("pg", 1), [8, 8, 8])
    runs.write_scores(make_mbpp_run("dapo", 0), [0, 0, 4])
    result = pairs.estimate_difference(
        select_runs(params, runs, "pg"), select_runs(params, runs, "dapo"), "pass@1"
    )
    assert (result.value, result.sample) == (pytest.approx(1 / 3), "n = 1 seed")
    assert result.p_at is result.low is None  # how much trainings differ is unknown


def test_pairing_removes_the_variance_between_problems(params, runs):
    """Problems differ in difficulty, but the algorithms differ by about the same on each."""
    hard_and_easy = [0, 1, 6, 7] * 5
    for seed in (0, 1):
        runs.write_scores(make_mbpp_run("pg", seed), hard_and_easy)
        scores_of_dapo = [c + 1 for c in hard_and_easy[:-1]] + [7]
        runs.write_scores(make_mbpp_run("dapo", seed), scores_of_dapo)
    dapo, pg = select_runs(params, runs, "dapo"), select_runs(params, runs, "pg")
    dapo_accuracy = pairs.estimate_accuracy(dapo, "pass@1")
    paired = pairs.estimate_difference(dapo, pg, "pass@1")
    assert dapo_accuracy.low < pairs.estimate_accuracy(pg, "pass@1").high  # they overlap
    assert paired.value == pytest.approx(19 / 20 / 8)
    assert not paired.covers(0)


def test_equal_scores_get_clopper_and_pearsons_interval(params, runs):
    """Shares lie between 0 and 1, differences between -1 and 1."""
    outcomes = [(name, 0, seed) for name in ("dapo", "grpo") for seed in (0, 1)]
    for name, correct, seed in (("pg", 8, 0), *outcomes, ("rapid-H4", 0, 2)):
        runs.write_scores(make_mbpp_run(name, seed), [correct] * 2)
    all_correct, all_wrong, also_wrong, other_seed = (
        select_runs(params, runs, name) for name in ("pg", "dapo", "grpo", "rapid-H4")
    )
    q = pytest.approx(1 - 0.025**0.5)
    accuracies = (
        pairs.estimate_accuracy(all_correct, "pass@1"),
        pairs.estimate_accuracy(all_wrong, "pass@1"),
    )
    assert [(1 - accuracy.low, accuracy.high) for accuracy in accuracies] == [(q, 1), (1, q)]
    difference = pairs.estimate_difference(all_wrong, also_wrong, "pass@1")
    assert (-difference.low, difference.high) == (q, q)
    assert (
        pairs.estimate_difference(all_correct, other_seed, "pass@1") is None
    )  # they have no common seed


def test_pass_at_8_of_8_samples_is_whether_any_is_correct(params, runs):
    assert (
        pairs.estimate_accuracy(select_runs(params, runs, "pg"), "pass@8") is None
    )  # without scores
    runs.write_scores(make_mbpp_run("pg"), [1, 0, 8, 0])
    assert pairs.estimate_accuracy(select_runs(params, runs, "pg"), "pass@8").value == 0.5


def test_problems_with_too_few_graded_samples_are_left_out_of_pass_at_k(params, runs):
    """As in an evaluation, the second problem counts in pass@1 and not in pass@8."""
    graded_and_correct = {"a": (8, 4), "b": (7, 7)}
    scores = [
        ProblemScore(id=id, samples=n, correct=c) for id, (n, c) in graded_and_correct.items()
    ]
    reasons = {"passed": 11, "wrong_answer": 4, "infrastructure": 1}
    fields = {"problems": 2, "samples": 8, "scores": scores, "reasons": reasons}
    runs.write_evaluation(make_mbpp_run("pg"), pass_at={1: 0.75, 8: 1.0}, **fields)
    estimates = [
        pairs.estimate_accuracy(select_runs(params, runs, "pg"), f"pass@{k}") for k in (1, 8)
    ]
    assert [estimate.value for estimate in estimates] == [0.75, 1.0]


def test_contrast_sums_scores_times_factors(params, runs):
    """pg - dapo - (grpo - rapid) / 2, over the two seeds and three problems that all have."""
    for name, correct in (("pg", [8, 8, 4]), ("dapo", [0, 4, 4]), ("grpo", [8, 0, 0])):
        for seed in (0, 1):
            runs.write_scores(make_mbpp_run(name, seed), correct)
    for seed in (0, 1):
        runs.write_scores(make_mbpp_run("rapid-H4", seed), [0, 0, 4 * seed])
    terms = [
        (select_runs(params, runs, name), factor)
        for name, factor in (("pg", 1), ("dapo", -1), ("grpo", -0.5), ("rapid-H4", 0.5))
    ]
    result = pairs.estimate_contrast(terms, "pass@1")
    # by problem 1 - 1/2, 1/2, and 0 or 1/4
    assert result.value == pytest.approx((0.5 + 0.5 + 0.125) / 3)
    assert result.sample == "n = 2 seeds and 3 problems"
    clustered = pairs.estimate_contrast(terms, "pass@1", {"p0": "a", "p1": "b", "p2": "b"})
    assert clustered.value == pytest.approx(result.value)
    assert clustered.sample == "n = 2 seeds and 2 problems"


def test_runtimes_are_compared_on_the_same_hardware_only():
    """The second seed ran on two machines; records of arenas do not name the machine."""
    columns = {"seed": [1, 2], "completion_length": [8.0, 8.0]}
    ours = pd.DataFrame(columns | {"runtime": [3.0, 1.0], "hardware": ["A6000", "H100"]})
    theirs = pd.DataFrame(columns | {"runtime": [4.0, 4.0], "hardware": ["A6000", "A6000"]})
    ratio = pairs.estimate_ratio(ours, theirs, "runtime")
    assert ratio.value == pytest.approx(0.75) and ratio.sample.endswith("n = 1 pairs")
    assert pairs.estimate_ratio(ours[1:], theirs, "runtime") is None
    assert pairs.estimate_ratio(ours, theirs, "completion_length").sample.endswith("n = 2 pairs")
    recorded = theirs.drop(columns="hardware")
    assert pairs.estimate_ratio(ours, recorded, "runtime").sample.endswith("n = 2 pairs")


def test_contrast_of_other_metrics_is_a_t_test_over_common_seeds():
    ours = pd.DataFrame({"seed": [1, 2, 3, 4], "entropy": [0.5, 0.75, 1.0, float("nan")]})
    theirs = pd.DataFrame({"seed": [3, 2, 1, 4], "entropy": [0.5, 0.5, 0.5, 0.5]})
    result = pairs.estimate_contrast([(ours, 1), (theirs, -2)], "entropy")
    assert result.value == pytest.approx(-0.25)
    test = stats.ttest_1samp([-0.5, -0.25, 0.0], 0)
    assert result.p_at(0) == pytest.approx(test.pvalue)
    interval = test.confidence_interval()
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high))
    assert pairs.estimate_contrast([(ours[:1], 1), (theirs[:1], 1)], "entropy") is None
