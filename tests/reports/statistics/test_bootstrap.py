"""Intervals over seeds and problems, against closed forms and against a simulated truth."""

import math

import numpy as np
import pytest
from scipy import stats

from reports.statistics.bootstrap import estimate, replicates

SHARES, DIFFERENCES = (0, 1), (-1, 1)


def test_the_variance_of_replicates_is_the_closed_form():
    # Drawing m of n with weights N/m: Var = a'a/(n m) for centred row effects a, likewise b for
    # columns, and e'e/(n m n' m') for what is left. With m = n - 1 the first is s^2/n.
    matrix = np.random.default_rng(5).random((4, 6))
    rows, columns = matrix.mean(1) - matrix.mean(), matrix.mean(0) - matrix.mean()
    rest = matrix - matrix.mean() - rows[:, None] - columns[None, :]
    expected = (
        (rows**2).sum() / (4 * 3) + (columns**2).sum() / (6 * 5) + (rest**2).sum() / (12 * 30)
    )
    assert (rows**2).sum() / 12 == pytest.approx(matrix.mean(1).var(ddof=1) / 4)
    drawn = replicates(matrix, 400_000)
    assert drawn.mean() == pytest.approx(matrix.mean(), abs=4 * math.sqrt(expected / 400_000))
    assert drawn.var() == pytest.approx(expected, rel=0.02)


def test_one_seed_and_two_outcomes_follow_the_binomial():
    # 21 problems of which 7 are solved: 20 are drawn, each solved with 1/3.
    drawn = 20 * replicates(np.array([[1.0] * 7 + [0.0] * 14]), 100_000)
    counts = np.bincount(drawn.round().astype(int), minlength=21) / 100_000
    assert np.abs(counts - stats.binom.pmf(range(21), 20, 1 / 3)).max() < 0.006
    found = estimate(np.array([[1.0] * 7 + [0.0] * 14]), SHARES)
    low, high = stats.binom.ppf([0.025, 0.975], 20, 1 / 3) / 20
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_the_same_scores_give_the_same_interval():
    matrix = np.random.default_rng(1).random((3, 9))
    assert estimate(matrix, SHARES) == estimate(matrix.copy(), SHARES)


@pytest.mark.parametrize(
    ("value", "bounds", "low", "high"),
    [
        (1.0, SHARES, 0.025 ** (1 / 40), 1.0),
        (0.0, SHARES, 0.0, 1 - 0.025 ** (1 / 40)),
        (0.0, DIFFERENCES, 0.025 ** (1 / 40) - 1, 1 - 0.025 ** (1 / 40)),
    ],
)
def test_scores_that_are_all_equal_get_clopper_and_pearsons_interval(value, bounds, low, high):
    found = estimate(np.full((3, 40), value), bounds)
    assert (found.low, found.high, found.p) == (pytest.approx(low), pytest.approx(high), None)
    exact = stats.binomtest(40, 40).proportion_ci(0.95)
    assert pytest.approx(exact.low) == 0.025 ** (1 / 40)


def test_replicates_of_exactly_0_are_on_both_sides():
    # One problem of three differs: of the two that are drawn none is that one in 4/9 of cases.
    found = estimate(np.array([[1.0, 0.0, 0.0]]), DIFFERENCES)
    share = 4 / 9
    noise = 4 * math.sqrt(share * (1 - share) / 10_000)
    assert found.p == pytest.approx(2 * share, abs=2 * noise)
    assert found.low == 0 and found.covers(0)


def test_p_is_at_least_two_in_the_replicates_and_one():
    found = estimate(np.array([[0.1, 0.2, 0.3]]), DIFFERENCES)
    assert found.p == pytest.approx(2 / 10_001)


def test_p_and_interval_agree():
    chance = np.random.default_rng(2)
    for shift in np.linspace(-0.2, 0.2, 21):
        found = estimate(chance.normal(shift, 0.4, (3, 40)), DIFFERENCES)
        assert found.covers(0) == (found.p > 0.05) or abs(found.p - 0.05) < 0.002


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_cover_the_truth(seeds):
    """Scores of a crossed design: a part of the problem, one of the seed, and noise."""
    chance = np.random.default_rng(seeds)
    covered = 0
    for _ in range(300):
        scores = (
            chance.normal(0, 0.03, (seeds, 1))
            + chance.normal(0, 0.3, (1, 40))
            + chance.normal(0, 0.2, (seeds, 40))
        )
        found = np.quantile(replicates(scores, 2000), [0.025, 0.975])
        covered += found[0] <= 0 <= found[1]
    assert covered / 300 > 0.92
