"""Seconds until an accuracy is reached, of runs of which some never reach it.

Such a run counts as slower than every run that does: its time is infinite. Only orders are used,
so that it does not matter how long it would have taken.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy import stats

from reports.statistics import decisions
from reports.statistics.estimates import LEVEL, ROUNDING, Estimate

# On the scale of logarithms. The exponential of a quarter is infinite: so is a mean with any other,
# and what lies halfway between that and another.
NEVER = 4000.0


def median(times: Sequence[float]) -> Estimate:
    """Return the median with its exact interval between two order statistics.

    The interval needs six values; its upper end is infinite where too many are.
    """
    ordered, n = np.sort(times), len(times)
    if not n:
        return Estimate(None, reason="no run has a time")
    middle = float(np.median(ordered))
    never = int(np.isinf(ordered).sum())
    over = f"n = {n} runs, of which {never} never reached it" if never else f"n = {n} runs"
    least = int(stats.binom.ppf((1 - LEVEL) / 2, n, 0.5))  # fewer than these are cut off below
    if not least:
        return Estimate(middle, over=over)

    return Estimate(middle, float(ordered[least - 1]), float(ordered[n - least]), over)


def ratio(ours: Sequence[float], reference: Sequence[float]) -> Estimate:
    """Return how many times as long ours takes, by Wilcoxon's signed ranks of log ratios.

    Times are paired by position. Value, interval and p are of the same exact test: the value is the
    median of the means of any two log ratios (Hodges and Lehmann 1963). Where only the reference
    never gets there the ratio is 0, where only ours does not it is infinite: their ranks are above
    all others. A seed in which neither does says nothing, and is left out.
    """
    logs = np.array([_log_ratio(*pair) for pair in _pairs(ours, reference)])
    n = len(logs)
    if not n:
        return Estimate(None, reason="in no seed did either reach it")
    means = np.sort((logs[:, None] + logs)[np.triu_indices(n)] / 2)
    reached = np.cumsum(_ranks(n))  # P(W <= w) of the sum W of the ranks above

    def p_at(limit: float) -> float:
        cut, edge = math.log(limit), means.size
        above, at = (means > cut + ROUNDING).sum(), (np.abs(means - cut) <= ROUNDING).sum()
        fewer = min(above + at / 2, edge - above - at / 2)  # the rest are below
        return float(min(1.0, 2 * reached[math.ceil(fewer)]))

    with np.errstate(over="ignore"):
        value, ordered = float(np.exp(np.median(means))), np.exp(means)
    over = f"n = {n} seeds"
    least = int(np.searchsorted(reached, (1 - LEVEL) / 2, side="right"))  # so many are cut off
    if not least:
        return Estimate(value, over=over)
    return Estimate(value, float(ordered[least - 1]), float(ordered[-least]), over, p_at=p_at)


def detectable(ours: Sequence[float], reference: Sequence[float], alpha: float) -> float | None:
    """Return the ratio below 1 that signed ranks of so many pairs would mostly have seen.

    It takes logarithms of ratios for normal, with the deviation of the pairs in which both get
    there. Signed ranks of n such pairs say as much as a t-test of 3 n / pi. `None` where these
    pairs are fewer than two, or no ratio would be seen.

    Args:
        alpha: the test's two-sided level.
    """
    pairs = _pairs(ours, reference)
    logs = [math.log(a / b) for a, b in pairs if max(a, b) < math.inf and min(a, b) > 0]
    n = len(pairs)
    if len(logs) < 2 or 2 * 0.5**n > alpha:
        return None
    error = np.std(logs, ddof=1) / math.sqrt(3 * n / math.pi)
    return math.exp(-decisions.detectable(Estimate(0.0, error=error, df=n - 1), alpha))


def _pairs(ours: Sequence[float], reference: Sequence[float]) -> list[tuple[float, float]]:
    """Return the pairs of which one gets there."""
    return [(a, b) for a, b in zip(ours, reference, strict=True) if min(a, b) < math.inf]


def _log_ratio(ours: float, reference: float) -> float:
    if ours == reference:
        return 0.0
    if math.inf in (ours, reference) or 0 in (ours, reference):
        return math.copysign(NEVER, ours - reference)
    return math.log(ours / reference)


@cache
def _ranks(n: int) -> np.ndarray:
    """Return the distribution of the sum of ranks 1 to n of which coins choose each or not."""
    distribution = np.ones(1)
    for rank in range(1, n + 1):
        distribution = np.convolve(distribution, np.r_[0.5, np.zeros(rank - 1), 0.5])
    return distribution
