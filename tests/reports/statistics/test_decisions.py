"""Multiple comparisons, equivalence and power, against closed forms and on simulated runs."""

import math

import numpy as np
import pytest
from scipy import stats

from reports.statistics.crossed import estimate_mean
from reports.statistics.decisions import (
    adjust_by_holm,
    compute_detectable_difference,
    compute_detectable_margin,
    compute_equivalence_p,
)
from reports.statistics.estimates import student_estimate
from tests.reports.statistics.rates import four_standard_errors, simulate_rates


def test_holm_adjustment_equals_values_by_hand():
    # sorted 0.01, 0.02, 0.04: x3, x2, x1, and never less than the one before
    assert adjust_by_holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert list(adjust_by_holm([0.6, 0.7])) == [1.0, 1.0]


@pytest.mark.parametrize("shift", [-0.03, -0.02, 0.0, 0.012, 0.02, 0.05])
def test_equivalence_is_the_larger_of_two_one_sided_t_tests(shift):
    values = np.random.default_rng(3).normal(0, 0.02, (20, 1))
    values += shift - values.mean()
    p = compute_equivalence_p(estimate_mean(values, (-1, 1)), 0.02)
    ps = (
        stats.ttest_1samp(values[:, 0], limit, alternative=side).pvalue
        for limit, side in ((-0.02, "greater"), (0.02, "less"))
    )
    assert p == pytest.approx(max(ps))


def test_detectable_difference_of_a_normal_is_the_sum_of_two_quantiles():
    quantiles = stats.norm.isf(0.025) + stats.norm.ppf(0.8)
    assert compute_detectable_difference(student_estimate(0, 3.0, math.inf, "")) == pytest.approx(
        3 * quantiles, rel=1e-4
    )


@pytest.mark.parametrize(("df", "alpha"), [(19, 0.05), (80, 0.05 / 40), (math.inf, 0.05)])
def test_equivalence_within_the_provable_margin_is_shown_in_80_percent(df, alpha):
    chance, n = np.random.default_rng(5), 4000
    margin = compute_detectable_margin(student_estimate(0, 1.0, df, ""), alpha)
    finite_df = min(df, 1e6)
    errors = np.sqrt(chance.chisquare(finite_df, n) / finite_df)
    samples = zip(chance.normal(0, 1, n), errors, strict=True)
    is_shown = [
        compute_equivalence_p(student_estimate(value, error, df, ""), margin) <= alpha
        for value, error in samples
    ]
    assert np.mean(is_shown) == pytest.approx(0.8, abs=4 * (0.16 / n) ** 0.5)


@pytest.mark.parametrize(
    ("df", "alpha", "published_difference"),
    [
        (19, 0.05, 0.6604),  # R: power.t.test(n = 20, sd = 1, power = 0.8, type = "one.sample")
        (19, 0.05 / 30, None),
        (2, 0.05 / 30, None),
    ],
)
def test_detectable_difference_is_significant_in_80_percent(df, alpha, published_difference):
    error = (df + 1) ** -0.5
    difference = compute_detectable_difference(student_estimate(0, error, df, ""), alpha)
    critical = stats.t.isf(alpha / 2, df)
    chance, n = np.random.default_rng(4), 100_000
    statistics = chance.normal(difference / error, 1, n) / np.sqrt(chance.chisquare(df, n) / df)
    assert (np.abs(statistics) > critical).mean() == pytest.approx(0.8, abs=4 * (0.16 / n) ** 0.5)
    if published_difference:
        assert difference == pytest.approx(published_difference, abs=5e-5)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("arenas", "sd"),
    [(150, 0.03), pytest.param(1000, 0.0, marks=SLOW), pytest.param(1000, 0.03, marks=SLOW)],
)
def test_error_rates_and_power_are_as_stated(arenas, sd):
    rates = simulate_rates(arenas, sd)
    for rate in (rates.wrong_difference, rates.wrong_family, rates.wrong_equality):
        assert rate < 0.05 + four_standard_errors(arenas)
    assert rates.difference_seen == pytest.approx(0.8, abs=four_standard_errors(arenas, 0.8))
