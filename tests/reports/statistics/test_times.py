"""Times of which some are infinite: order statistics and signed ranks."""

import math

import numpy as np
import pytest
from scipy import stats

from reports.statistics import decisions, times
from reports.statistics.estimates import Estimate

NEVER = math.inf


@pytest.mark.parametrize(
    ("given", "middle"),
    [([3, 1, 2], 2), ([4, 1, 2, NEVER], 3), ([1, NEVER], NEVER), ([], None)],
)
def test_a_run_that_never_gets_there_is_slower_than_all(given, middle):
    assert times.median(given).value == middle


def test_the_interval_is_between_order_statistics():
    # Of 20 values the 6th and the 15th: fewer than 6 of 20 tosses are heads with 0.0207.
    found = times.median(range(1, 21))
    assert (found.low, found.high) == (6, 15)
    assert stats.binom.cdf(5, 20, 0.5) < 0.025 < stats.binom.cdf(6, 20, 0.5)
    some = times.median([*range(1, 15), *[NEVER] * 6])
    assert some.high == NEVER and "6 never" in some.over
    five = times.median(range(5))
    assert (five.low, five.over) == (None, "n = 5 runs")  # of five values there is none


def test_ratios_by_hand():
    ours = [1, NEVER, 6, NEVER, 0, 3, 0]
    theirs = [2, 5, NEVER, NEVER, 0, 0, 4]
    # 0.5, infinite, 0, left out, 1, infinite, 0: of 21 means of two 9 are below 1, and 7 above.
    found = times.ratio(ours, theirs)
    assert (found.value, found.low, found.high) == (1.0, 0, NEVER)
    # 1/2, 1, 2 and 32, powers of 2: of the means of two the fifth is 0.5, the sixth of ten 1.
    four = times.ratio([1, 1, 2, 32], [2, 1, 1, 1])
    assert (four.value, four.over) == (pytest.approx(2**0.75), "n = 4 seeds")


def test_between_a_ratio_and_never_is_never():
    """Three of six means of two are finite, so that the median lies between both kinds."""
    assert times.ratio([1, 2, NEVER], [2, 2, 2]).value == NEVER
    assert times.ratio([2, 2, 2], [1, 2, NEVER]).value == 0


@pytest.mark.parametrize(
    ("power", "ways"),
    [(-1, 2), (0, 4), (0.5, 6), (1, 10), (3, 44), (2.5, 64), (4, 10), (5, 4), (6, 2)],
)
def test_a_mean_of_two_that_is_the_limit_itself_counts_half_on_each_side(power, ways):
    """Logs 0 to 5: at most 0, 0.5, 1.5, 3, 7.5 or 10.5 of their means are beyond these limits.

    Of 64 ways to toss six coins these have so small a sum of ranks, rounded up, or so large a one.
    """
    found = times.ratio([1, 2, 4, 8, 16, 32], [1] * 6)
    assert found.p_at(2**power) == pytest.approx(ways / 64)


@pytest.mark.parametrize("limit", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("n", [6, 20, 80])
def test_a_ratios_p_is_that_of_signed_ranks_and_of_its_interval(n, limit):
    chance = np.random.default_rng(n)
    ours, theirs = chance.random((2, n))
    found, logs = times.ratio(ours, theirs), np.log(ours / theirs)
    exact = stats.wilcoxon(logs - math.log(limit), method="exact").pvalue
    assert found.p_at(limit) == pytest.approx(exact)
    for end, beyond in ((found.low, 0.999), (found.high, 1.001)):
        assert found.p_at(end * beyond) <= 0.05 < found.p_at(end / beyond)


def test_who_never_gets_there_has_the_highest_ranks():
    """As if these took a thousand times as long; a sign test of 12 of 20 sees nothing."""
    ours = [*np.linspace(10.1, 10.8, 8), *[NEVER] * 12]
    late = [*ours[:8], *np.linspace(10_000, 11_000, 12)]
    theirs = [*[11.0] * 8, *[10.0] * 12]
    found = times.ratio(ours, theirs)
    assert found.p_at(1) == pytest.approx(times.ratio(late, theirs).p_at(1))
    assert found.p_at(1) < 0.05 < stats.binomtest(12, 20).pvalue
    assert found.value > 1


def test_a_ratio_that_is_detectable_is_mostly_seen():
    """Of 2,000 simulated comparisons at that ratio 80 % are significant, within three errors."""
    chance = np.random.default_rng(0)
    noise, alpha, seeds = 0.1, 0.05 / 28, 20
    spread = np.exp(chance.normal(0, noise, 4000))
    factor = times.detectable(spread, np.ones(4000), alpha)  # of so many, hardly below 1
    logs = np.resize([-noise, noise], seeds) * math.sqrt((seeds - 1) / seeds)
    found = times.detectable(np.exp(logs), np.ones(seeds), alpha)
    assert found < factor < 1
    drawn = np.exp(chance.normal(math.log(found), noise, (2000, seeds)))
    seen = [(times.ratio(row, np.ones(seeds)).p_at(1) <= alpha) for row in drawn]
    assert np.mean(seen) == pytest.approx(0.8, abs=3 * math.sqrt(0.16 / 2000))
    assert times.detectable([1.0, 2.0], [1.0, 1.0], alpha) is None


def test_the_detectable_ratio_has_its_noise_from_pairs_that_both_get_there():
    """In two of ten both do, one more says nothing; alpha is the least p that ten can have."""
    ours = [NEVER, 2 * math.exp(0.1), 3 * math.exp(-0.1), *[0, NEVER] * 4]
    alpha, error = 2 / 2**10, 0.1 * math.sqrt(2) / math.sqrt(30 / math.pi)
    least = decisions.detectable(Estimate(0.0, error=error, df=9), alpha)
    theirs = [NEVER, 2, 3, *[1] * 8]
    assert times.detectable(ours, theirs, alpha) == pytest.approx(math.exp(-least))
    assert times.detectable(ours[:-1], theirs[:-1], alpha) is None
