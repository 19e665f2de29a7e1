"""Means, marks, ratios and correlations, against values by hand and scipy."""

import math

import pytest
from scipy.stats import pearsonr, ttest_1samp, ttest_rel

from reports.statistics.estimates import (
    Estimate,
    correlate_with_h,
    estimate_correlation,
    estimate_mean,
    estimate_paired_ratio,
)
from reports.tables.columns import mark_best

NAN = math.nan


@pytest.mark.parametrize(
    ("values", "higher_is_better", "expected"),
    [
        ([1, 3, 2], True, ["", "best", "runner-up"]),
        ([1, 3, 2], False, ["best", "", "runner-up"]),
        ([None, 3, 2], False, ["", "runner-up", "best"]),
        ([3, 3, 2], True, ["best", "best", ""]),  # two best ones leave no runner-up
        ([3, 2, 2], True, ["best", "runner-up", "runner-up"]),
        ([3, None], True, ["", ""]),
        ([3, 3], True, ["", ""]),  # all equal: none is marked
        ([], True, []),
    ],
)
def test_marks_best_and_runner_up_of_a_column(values, higher_is_better, expected):
    assert mark_best(values, higher_is_better) == expected


def test_correlation_equals_the_value_by_hand_without_missing_runs():
    # H - 2: -1, 0, 1; value - 2: 0, -1, 1 -> 1 / sqrt(2 * 2) = 0.5
    result = correlate_with_h([1, 2, 3, 9], [2, 1, 3, NAN])
    assert (result.value, result.sample) == (pytest.approx(0.5), "Pearson's r over n = 3 runs")
    assert (result.low, result.high) == (None, None)  # three points have no interval


@pytest.mark.parametrize(
    ("h_values", "values", "reason"),
    [
        ([1], [1], "1 run with a value, but a correlation needs 3"),
        ([1, 2], [1, 2], "2 runs with a value, but a correlation needs 3"),
        ([4, 4, 4], [1, 2, 3], "all runs have the same H: no correlation"),
        ([1, 2, 3], [0, 0, 0], "all runs have the same value: no correlation"),
    ],
)
def test_undefined_correlation_has_a_reason(h_values, values, reason):
    assert correlate_with_h(h_values, values) == Estimate(None, reason=reason)


@pytest.mark.parametrize("n", [4, 5])
def test_interval_of_a_correlation_is_fishers(n):
    points = [1, 2, 3, 4, 5][:n], [2, 1, 4, 3, 5][:n]
    result, expected = correlate_with_h(*points), pearsonr(*points).confidence_interval(0.95)
    assert (result.low, result.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_pairs_without_noise_have_an_interval_of_one_point():
    result = estimate_paired_ratio([2, 4], [4, 8])
    assert (result.low, result.high) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (result.p_at(0.5), result.p_at(1)) == (1, 0)
    assert (estimate_correlation(1.0, 5).p_at(1), estimate_correlation(1.0, 5).p_at(0)) == (1, 0)


def test_paired_ratio_equals_the_value_by_hand():
    # logs of 1/2 and 2: -log 2 and log 2. Mean 0, s = sqrt(2) log 2, half_width = t * s / sqrt(2).
    result = estimate_paired_ratio([0.2, 0.8, NAN, 0, math.inf], [0.4, 0.4, 1, 1, 1])
    half_width = math.log(2) * 12.7062
    assert (result.value, result.p_at(1)) == (pytest.approx(1), pytest.approx(1))
    assert result.sample == "ratio of geometric means, n = 2 pairs"
    assert math.log(result.high) == pytest.approx(half_width, rel=1e-5)
    assert result.covers(1)


def test_p_of_a_paired_ratio_equals_the_paired_t_test():
    a, b = [3.1, 2.9, 3.4], [6.0, 7.1, 5.2]
    result = estimate_paired_ratio(a, b)
    logs = [*map(math.log, a)], [*map(math.log, b)]
    assert result.p_at(1) == pytest.approx(ttest_rel(*logs).pvalue)
    halved = ttest_rel(logs[0], [log - math.log(2) for log in logs[1]])
    assert result.p_at(0.5) == pytest.approx(halved.pvalue)


def test_a_single_pair_has_a_ratio_without_an_interval():
    result = estimate_paired_ratio([2], [4])
    assert (result.value, result.low, result.p_at, result.covers(1)) == (0.5, None, None, False)
    assert result.sample == "ratio of geometric means, n = 1 pairs"
    assert estimate_paired_ratio([NAN], [4]) is None


def test_interval_of_a_mean_is_students():
    result = estimate_mean([1.0, 2.0, 4.0, NAN])
    low, high = ttest_1samp([1.0, 2.0, 4.0], 0).confidence_interval(0.95)
    assert (result.low, result.high) == (pytest.approx(low), pytest.approx(high))
    assert estimate_mean([2.0, 2.0]).covers(2.0)
    assert (estimate_mean([3.0]).value, estimate_mean([3.0]).low, estimate_mean([NAN])) == (
        3.0,
        None,
        None,
    )
