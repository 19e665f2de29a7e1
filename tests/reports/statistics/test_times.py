"""Medians and ratios of times, some of them infinite: order statistics and signed ranks."""

import math

import numpy as np
import pytest
from scipy import stats

from reports.statistics import decisions, times
from reports.statistics.estimates import Estimate

NEVER = math.inf


@pytest.mark.parametrize(
    ("seconds", "median"),
    [([3, 1, 2], 2), ([4, 1, 2, NEVER], 3), ([1, NEVER], NEVER), ([], None)],
)
def test_median_counts_infinite_times_as_slowest(seconds, median):
    assert times.median_time(seconds).value == median


def test_interval_of_a_median_lies_between_order_statistics():
    # The 6th and the 15th of 20 values: fewer than 6 of 20 tosses are heads with p = 0.0207.
    result = times.median_time(range(1, 21))
    assert (result.low, result.high) == (6, 15)
    assert stats.binom.cdf(5, 20, 0.5) < 0.025 < stats.binom.cdf(6, 20, 0.5)
    partly_infinite = times.median_time([*range(1, 15), *[NEVER] * 6])
    assert partly_infinite.high == NEVER and "6 never" in partly_infinite.sample
    of_five_values = times.median_time(range(5))
    assert of_five_values.low is None  # five values are too few for an interval
    assert of_five_values.sample == "n = 5 runs"


def test_ratio_equals_the_value_by_hand():
    ours = [1, NEVER, 6, NEVER, 0, 3, 0]
    reference = [2, 5, NEVER, NEVER, 0, 0, 4]
    # The ratios are 0.5, inf, 0, none, 1, inf, 0; of 21 pairwise means 9 are below 1 and 7 above.
    result = times.time_ratio(ours, reference)
    assert (result.value, result.low, result.high) == (1.0, 0, NEVER)
    # The ratios are 1/2, 1, 2 and 32. Of their ten pairwise means the fifth is 2^0.5, the sixth 2.
    of_four_seeds = times.time_ratio([1, 1, 2, 32], [2, 1, 1, 1])
    assert (of_four_seeds.value, of_four_seeds.sample) == (pytest.approx(2**0.75), "n = 4 seeds")


def test_median_ratio_has_the_interval_of_a_sign_test():
    """Three of 20 ratios are 0; the 6th and the 15th are the ends of the interval."""
    ours, reference = [10.0 * n for n in range(1, 21)], [10.0] * 17 + [NEVER] * 3
    result = times.median_ratio(ours, reference)
    assert (result.low, result.high) == (pytest.approx(3), pytest.approx(12))
    assert result.value == pytest.approx((7 * 8) ** 0.5)
    assert times.time_ratio(ours, reference).low == 0
    p = stats.binomtest(5, 20).pvalue  # five ratios lie below the interval
    assert p < 0.05 < stats.binomtest(6, 20).pvalue


def test_median_ratio_leaves_out_pairs_without_any_time():
    result = times.median_ratio([1, NEVER, NEVER], [2, 2, NEVER])
    assert (result.value, result.low, result.sample) == (NEVER, None, "n = 2 seeds")
    assert times.median_ratio([NEVER], [NEVER]).value is None


def test_median_between_a_finite_and_an_infinite_ratio_is_infinite():
    """Three of six pairwise means are finite: the median averages a finite and an infinite one."""
    assert times.time_ratio([1, 2, NEVER], [2, 2, 2]).value == NEVER
    assert times.time_ratio([2, 2, 2], [1, 2, NEVER]).value == 0


@pytest.mark.parametrize(
    ("power", "extreme_patterns"),
    [(-1, 2), (0, 4), (0.5, 6), (1, 10), (3, 44), (2.5, 64), (4, 10), (5, 4), (6, 2)],
)
def test_pairwise_mean_equal_to_the_limit_counts_half_on_each_side(power, extreme_patterns):
    """The logs of the ratios are 0 to 5, so that some of their pairwise means equal the limit.

    With these counted half, 0, 0.5, 1.5, 3, 7.5 or 10.5 means at most lie on the smaller side. Of 64
    patterns of signs, `extreme_patterns` have so small a rank sum (rounded up), or so large a one.
    """
    result = times.time_ratio([1, 2, 4, 8, 16, 32], [1] * 6)
    assert result.p_at(2**power) == pytest.approx(extreme_patterns / 64)


@pytest.mark.parametrize("limit", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("n", [6, 20, 80])
def test_p_of_a_ratio_is_wilcoxons_and_agrees_with_its_interval(n, limit):
    chance = np.random.default_rng(n)
    ours, reference = chance.random((2, n))
    result, logs = times.time_ratio(ours, reference), np.log(ours / reference)
    exact_p = stats.wilcoxon(logs - math.log(limit), method="exact").pvalue
    assert result.p_at(limit) == pytest.approx(exact_p)
    for end, outwards in ((result.low, 0.999), (result.high, 1.001)):
        assert result.p_at(end * outwards) <= 0.05 < result.p_at(end / outwards)


def test_infinite_ratios_have_the_highest_ranks():
    """Infinite times rank as very long ones do; a sign test of 12 of 20 is not significant."""
    ours = [*np.linspace(10.1, 10.8, 8), *[NEVER] * 12]
    ours_finite = [*ours[:8], *np.linspace(10_000, 11_000, 12)]
    reference = [*[11.0] * 8, *[10.0] * 12]
    result = times.time_ratio(ours, reference)
    assert result.p_at(1) == pytest.approx(times.time_ratio(ours_finite, reference).p_at(1))
    assert result.p_at(1) < 0.05 < stats.binomtest(12, 20).pvalue
    assert result.value > 1


def test_detectable_ratio_is_significant_in_80_percent():
    """80 % of 2,000 simulated comparisons are significant, within three standard errors."""
    chance = np.random.default_rng(0)
    noise, alpha, seeds = 0.1, 0.05 / 28, 20
    spread = np.exp(chance.normal(0, noise, 4000))
    # With so many pairs it is close to 1.
    ratio_of_many_pairs = times.compute_detectable_ratio(spread, np.ones(4000), alpha)
    logs = np.resize([-noise, noise], seeds) * math.sqrt((seeds - 1) / seeds)
    detectable_ratio = times.compute_detectable_ratio(np.exp(logs), np.ones(seeds), alpha)
    assert detectable_ratio < ratio_of_many_pairs < 1
    ratios = np.exp(chance.normal(math.log(detectable_ratio), noise, (2000, seeds)))
    significant = [(times.time_ratio(row, np.ones(seeds)).p_at(1) <= alpha) for row in ratios]
    assert np.mean(significant) == pytest.approx(0.8, abs=3 * math.sqrt(0.16 / 2000))
    assert times.compute_detectable_ratio([1.0, 2.0], [1.0, 1.0], alpha) is None


def test_detectable_ratio_takes_its_noise_from_finite_pairs():
    """Ten pairs have a log ratio, two of them a finite one; alpha is the least p of ten pairs."""
    ours = [NEVER, 2 * math.exp(0.1), 3 * math.exp(-0.1), *[0, NEVER] * 4]
    alpha, error = 2 / 2**10, 0.1 * math.sqrt(2) / math.sqrt(30 / math.pi)
    detectable_log = decisions.compute_detectable_difference(
        Estimate(0.0, error=error, df=9), alpha
    )
    reference = [NEVER, 2, 3, *[1] * 8]
    assert times.compute_detectable_ratio(ours, reference, alpha) == pytest.approx(
        math.exp(-detectable_log)
    )
    assert times.compute_detectable_ratio(ours[:-1], reference[:-1], alpha) is None
