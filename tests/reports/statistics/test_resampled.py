"""Interquartile means and probabilities of improvement: by hand, by scipy, and their coverage."""

import numpy as np
import pytest
from scipy import stats

from reports.statistics.resampled import improvement, interquartile_mean
from tests.reports.statistics.rates import coverage, noise


def test_an_interquartile_mean_leaves_out_the_outer_quarters():
    scores = np.array([[0.0, 0.2], [0.3, 0.4], [0.5, 0.6], [0.8, 1.0]])
    assert interquartile_mean(scores).value == pytest.approx((0.3 + 0.4 + 0.5 + 0.6) / 4)


def test_runs_are_drawn_within_each_task():
    """Twice the same task: drawn apart, its noise falls by the root of 2; together it would not."""
    ours, theirs = np.random.default_rng(5).normal(0, 1, (2, 40, 1))
    twice = [np.repeat(scores, 2, axis=1) for scores in (ours, theirs)]
    for one, two in (
        (interquartile_mean(ours), interquartile_mean(twice[0])),
        (improvement(ours, theirs), improvement(*twice)),
    ):
        assert two.value == pytest.approx(one.value)
        assert (two.high - two.low) / (one.high - one.low) == pytest.approx(0.5**0.5, abs=0.06)


def test_of_n_runs_n_minus_1_are_drawn():
    # Three of 0, 0, 0, 1: all 1 in 1/64 of cases, which is less than 0.025; two of them in 10/64.
    scores = np.array([[0.0], [0.0], [0.0], [1.0]])
    assert interquartile_mean(scores).high == pytest.approx(2 / 3)
    found = improvement(scores, np.full((4, 1), 0.5))
    assert (found.low, found.high) == (0, pytest.approx(2 / 3))


def test_runs_of_both_are_drawn_apart():
    same = np.arange(20.0)[:, None]
    found, turned = improvement(same, same), improvement(same, same[::-1])
    assert found.low < 0.4 < 0.6 < found.high
    assert found.high - found.low == pytest.approx(turned.high - turned.low, rel=0.1)


def test_the_deviation_of_replicates_is_that_of_the_mean_within_the_quartiles():
    # Of 201 normal scores: Tukey and McLaughlin's standard error of a trimmed mean.
    scores = np.random.default_rng(1).normal(0, 1, (201, 1))
    winsorized = stats.mstats.winsorize(scores[:, 0], (0.25, 0.25))
    error = winsorized.std(ddof=1) / (0.5 * 201**0.5)
    found = interquartile_mean(scores)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.1)


def test_improvement_is_mann_and_whitneys_u_averaged_over_tasks():
    chance = np.random.default_rng(2)
    ours, theirs = chance.integers(0, 9, (20, 2)) / 8, chance.integers(0, 9, (15, 2)) / 8
    shares = [stats.mannwhitneyu(ours[:, i], theirs[:, i]).statistic / (20 * 15) for i in (0, 1)]
    assert improvement(ours, theirs).value == pytest.approx(np.mean(shares))
    assert improvement(theirs, ours).value == pytest.approx(1 - np.mean(shares))


def test_runs_that_never_get_there_tie_with_each_other():
    ours, theirs = np.array([[1.0], [-np.inf]]), np.array([[0.0], [-np.inf]])
    assert improvement(ours, theirs).value == (1 + 1 + 0 + 0.5) / 4


def test_always_better_is_not_taken_for_certainty():
    found = improvement(np.ones((20, 1)), np.zeros((10, 1)))
    assert (found.value, found.low, found.high) == (1, pytest.approx(0.025 ** (1 / 10)), 1)


@pytest.mark.slow
def test_intervals_hold_the_truth():
    for share in coverage(200, 1):
        assert share > 0.95 - noise(200)
