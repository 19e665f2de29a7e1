"""Intervals over seeds and problems, against analyses of variance worked out otherwise."""

import numpy as np
import pytest
from scipy import stats

from reports.statistics.crossed import estimate

SHARES, DIFFERENCES = (0, 1), (-1, 1)


def test_mean_squares_by_hand():
    # Rows 0.5, 0.4; columns 0.8, 0.3, 0.25; mean 0.45. Squares: seeds 3 (2 x 0.05^2) / 1 = 0.015,
    # problems 2 (0.35^2 + 0.15^2 + 0.2^2) / 2 = 0.185, rest 6 terms of 0.05^2 / 2 = 0.0075 here.
    matrix = np.array([[0.9, 0.3, 0.3], [0.7, 0.3, 0.2]])
    found = estimate(matrix, SHARES)
    rest = np.array([[0.05, -0.05, 0.0], [-0.05, 0.05, 0.0]])
    seeds, problems, within = 0.015, 0.185, (rest**2).sum() / 2
    variance = seeds + problems - within
    df = variance**2 / (seeds**2 / 1 + problems**2 / 2 + within**2 / 2)
    assert found.value == pytest.approx(0.45)
    assert found.error == pytest.approx((variance / 6) ** 0.5)
    assert found.df == pytest.approx(df)


@pytest.mark.parametrize("turn", [np.asarray, np.transpose])
def test_one_seed_or_one_problem_is_a_t_test_over_the_other(turn):
    values = np.random.default_rng(1).random((1, 9))
    found = estimate(turn(values), SHARES)
    test = stats.ttest_1samp(values[0], 0.3)
    low, high = test.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.p_at(0.3) == pytest.approx(test.pvalue)


def test_seeds_that_all_problems_follow_are_a_t_test_over_seeds():
    means = np.array([0.3, 0.5, 0.45, 0.6])
    found = estimate(np.repeat(means[:, None], 50, axis=1), SHARES)
    low, high = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert (found.low, found.high, found.df) == (pytest.approx(low), pytest.approx(high), 3)


def test_equal_means_of_noise_are_not_taken_for_certainty():
    found = estimate(np.array([[1.0, 0.0], [0.0, 1.0]]), SHARES)
    assert (found.low, found.high) == (0, 1)


@pytest.mark.parametrize(
    ("value", "bounds", "low", "high"),
    [
        (1.0, SHARES, 0.025 ** (1 / 40), 1.0),
        (0.0, SHARES, 0.0, 1 - 0.025 ** (1 / 40)),
        (0.0, DIFFERENCES, 0.025 ** (1 / 40) - 1, 1 - 0.025 ** (1 / 40)),
        (-1.0, DIFFERENCES, -1.0, 1 - 2 * 0.025 ** (1 / 40)),
    ],
)
def test_scores_that_are_all_equal_get_clopper_and_pearsons_interval(value, bounds, low, high):
    found = estimate(np.full((3, 40), value), bounds)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    for end in (low, value, high):
        assert found.p_at(end) == pytest.approx(1.0 if end == value else 0.05)
    assert (found.p_at((low + 99 * value) / 100), found.p_at(2)) == (1, 0)
    exact = stats.binomtest(40, 40).proportion_ci(0.95)
    assert pytest.approx(exact.low) == 0.025 ** (1 / 40)


def test_p_and_interval_agree():
    found = estimate(np.random.default_rng(2).normal(0.1, 0.4, (3, 40)), DIFFERENCES)
    assert [found.p_at(end) for end in (found.low, found.high)] == pytest.approx([0.05, 0.05])
