"""Several claims, equality and power, against closed forms; and their rates on simulated runs."""

import math

import numpy as np
import pytest
from scipy import stats

from reports.statistics.crossed import estimate
from reports.statistics.decisions import detectable, equivalence, holm, provable
from reports.statistics.estimates import student
from tests.reports.statistics.rates import noise, rates


def test_holm_by_hand():
    # sorted 0.01, 0.02, 0.04: x3, x2, x1, and never less than the one before
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert list(holm([0.6, 0.7])) == [1.0, 1.0]


@pytest.mark.parametrize("shift", [-0.03, -0.02, 0.0, 0.012, 0.02, 0.05])
def test_equivalence_is_the_larger_of_two_one_sided_t_tests(shift):
    values = np.random.default_rng(3).normal(0, 0.02, (20, 1))
    values += shift - values.mean()
    found = equivalence(estimate(values, (-1, 1)), 0.02)
    sides = (
        stats.ttest_1samp(values[:, 0], limit, alternative=way).pvalue
        for limit, way in ((-0.02, "greater"), (0.02, "less"))
    )
    assert found == pytest.approx(max(sides))


def test_the_detectable_difference_of_a_normal_is_the_sum_of_two_quantiles():
    known = stats.norm.isf(0.025) + stats.norm.ppf(0.8)
    assert detectable(student(0, 3.0, math.inf, "")) == pytest.approx(3 * known, rel=1e-4)


@pytest.mark.parametrize(("df", "alpha"), [(19, 0.05), (80, 0.05 / 40), (math.inf, 0.05)])
def test_equality_within_the_provable_margin_is_shown_so_often(df, alpha):
    chance, n = np.random.default_rng(5), 4000
    margin = provable(student(0, 1.0, df, ""), alpha)
    freedom = min(df, 1e6)
    errors = np.sqrt(chance.chisquare(freedom, n) / freedom)
    drawn = zip(chance.normal(0, 1, n), errors, strict=True)
    shown = [equivalence(student(value, error, df, ""), margin) <= alpha for value, error in drawn]
    assert np.mean(shown) == pytest.approx(0.8, abs=4 * (0.16 / n) ** 0.5)


@pytest.mark.parametrize(
    ("df", "alpha", "expected"),
    [
        (19, 0.05, 0.6604),  # R: power.t.test(n = 20, sd = 1, power = 0.8, type = "one.sample")
        (19, 0.05 / 30, None),
        (2, 0.05 / 30, None),
    ],
)
def test_the_detectable_difference_is_seen_so_often(df, alpha, expected):
    error = (df + 1) ** -0.5
    found = detectable(student(0, error, df, ""), alpha)
    critical = stats.t.isf(alpha / 2, df)
    chance, n = np.random.default_rng(4), 100_000
    drawn = chance.normal(found / error, 1, n) / np.sqrt(chance.chisquare(df, n) / df)
    assert (np.abs(drawn) > critical).mean() == pytest.approx(0.8, abs=4 * (0.16 / n) ** 0.5)
    if expected:
        assert found == pytest.approx(expected, abs=5e-5)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("arenas", "sd"),
    [(150, 0.03), pytest.param(1000, 0.0, marks=SLOW), pytest.param(1000, 0.03, marks=SLOW)],
)
def test_the_stated_error_rates_are_met(arenas, sd):
    found = rates(arenas, sd)
    for rate in (found.wrong_difference, found.wrong_family, found.wrong_equality):
        assert rate < 0.05 + noise(arenas)
    assert found.difference_seen == pytest.approx(0.8, abs=noise(arenas, 0.8))
