"""Interquartile means and probabilities of improvement: by hand, by scipy, and coverage."""

import numpy as np
import pytest
from scipy import stats

from reports.statistics.resampled import interquartile_mean, probability_of_improvement
from tests.reports.statistics.rates import four_standard_errors, simulate_coverage


def test_interquartile_mean_leaves_out_the_outer_quarters():
    scores = np.array([0.0, 0.3, 0.5, 0.8, 0.2, 0.4, 0.6, 1.0])
    assert interquartile_mean(scores).value == pytest.approx((0.3 + 0.4 + 0.5 + 0.6) / 4)


def test_n_minus_1_of_n_runs_are_drawn():
    # Three draws from 0, 0, 0, 1: all are 1 in 1/64 of cases, below 0.025; two or more in 10/64.
    scores = np.array([0.0, 0.0, 0.0, 1.0])
    assert interquartile_mean(scores).high == pytest.approx(2 / 3)
    result = probability_of_improvement(scores, np.full(4, 0.5))
    assert (result.low, result.high) == (0, pytest.approx(2 / 3))


def test_runs_of_both_algorithms_are_drawn_independently():
    scores = np.arange(20.0)
    result, reversed_order = (
        probability_of_improvement(scores, scores),
        probability_of_improvement(scores, scores[::-1]),
    )
    assert result.low < 0.4 < 0.6 < result.high
    assert result.high - result.low == pytest.approx(
        reversed_order.high - reversed_order.low, rel=0.1
    )


def test_interval_of_an_interquartile_mean_has_the_standard_error_of_a_trimmed_mean():
    # Tukey and McLaughlin's standard error of a trimmed mean, of 201 normal scores.
    scores = np.random.default_rng(1).normal(0, 1, 201)
    winsorized = stats.mstats.winsorize(scores, (0.25, 0.25))
    error = winsorized.std(ddof=1) / (0.5 * 201**0.5)
    result = interquartile_mean(scores)
    assert (result.high - result.low) / 2 == pytest.approx(1.96 * error, rel=0.1)


def test_improvement_is_mann_whitney_u():
    chance = np.random.default_rng(2)
    ours, reference = chance.integers(0, 9, 20) / 8, chance.integers(0, 9, 15) / 8
    share = stats.mannwhitneyu(ours, reference).statistic / (20 * 15)
    assert probability_of_improvement(ours, reference).value == pytest.approx(share)
    assert probability_of_improvement(reference, ours).value == pytest.approx(1 - share)


def test_infinite_scores_tie_with_each_other():
    ours, reference = np.array([1.0, -np.inf]), np.array([0.0, -np.inf])
    assert probability_of_improvement(ours, reference).value == (1 + 1 + 0 + 0.5) / 4


def test_improvement_of_1_still_has_an_interval():
    result = probability_of_improvement(np.ones(20), np.zeros(10))
    assert (result.value, result.low, result.high) == (1, pytest.approx(0.025 ** (1 / 10)), 1)


@pytest.mark.slow
def test_intervals_cover_the_true_value():
    for covered in simulate_coverage(200):
        assert covered > 0.95 - four_standard_errors(200)
