"""Training time until a target accuracy, where some runs never reach it.

A run that never reaches the accuracy has an infinite time and counts as slower than all others. The
statistics depend only on the order of times, so the time that this run would have needed does not
matter.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy import stats

from reports.statistics import decisions
from reports.statistics.estimates import LEVEL, ROUNDING, Estimate

# The log ratio of two times of which one is infinite (or 0). It is finite, so that means can be
# computed, and so large that exp(NEVER / 4) is infinite in floating point. So the mean of NEVER and
# any other log ratio stands for an infinite ratio too, and so does the mean of such a mean and
# another one.
NEVER = 4000.0
NEITHER = "in no seed did either reach it"


def median(times: Sequence[float]) -> Estimate:
    """Return the median time with its exact interval, which lies between two of the times.

    The interval needs six times. Its upper end is infinite if too many runs never reach the
    accuracy.
    """
    if not len(times):
        return Estimate(None, reason="no run has a time")
    never = int(np.isinf(times).sum())
    over = f"n = {len(times)} runs"
    return _median(times, f"{over}, of which {never} never reached it" if never else over)


def median_ratio(ours: Sequence[float], reference: Sequence[float]) -> Estimate:
    """Return the median of the ratios of times ours / reference, with the sign test's interval.

    Times are paired by position. The interval of `ratio` ends at 0 or infinity as soon as a few
    pairs have such a ratio, because it averages pairs. This one does so only if many have.
    """
    logs = [_log_ratio(*pair) for pair in _pairs(ours, reference)]
    if not logs:
        return Estimate(None, reason=NEITHER)
    middle = _median(logs, f"n = {len(logs)} seeds")
    with np.errstate(over="ignore"):
        ends = [
            None if end is None else float(np.exp(end))
            for end in (middle.value, middle.low, middle.high)
        ]
    return Estimate(*ends, middle.over)


def _median(values: Sequence[float], over: str) -> Estimate:
    """Return the median with its exact interval, which is that of a sign test."""
    ordered, n = np.sort(values), len(values)
    middle = float(np.median(ordered))
    # The interval begins at the `least`-th smallest value and ends at the `least`-th largest.
    least = int(stats.binom.ppf((1 - LEVEL) / 2, n, 0.5))
    if not least:
        return Estimate(middle, over=over)
    return Estimate(middle, float(ordered[least - 1]), float(ordered[n - least]), over)


def ratio(ours: Sequence[float], reference: Sequence[float]) -> Estimate:
    """Return the ratio of times ours / reference, by Wilcoxon's signed-rank test of log ratios.

    Times are paired by position. The value is Hodges and Lehmann's (1963): the exponential of the
    median of all means of two log ratios. Interval and p are those of the exact test. A pair in
    which only one run reaches the accuracy has the ratio 0 or infinity, and a rank above all finite
    ratios. A pair in which neither run reaches it is left out.
    """
    logs = np.array([_log_ratio(*pair) for pair in _pairs(ours, reference)])
    n = len(logs)
    if not n:
        return Estimate(None, reason=NEITHER)
    means = np.sort((logs[:, None] + logs)[np.triu_indices(n)] / 2)
    reached = np.cumsum(_ranks(n))  # P(W <= w), W: sum of the ranks of ratios above the limit

    def p_at(limit: float) -> float:
        cut, edge = math.log(limit), means.size
        above, at = (means > cut + ROUNDING).sum(), (np.abs(means - cut) <= ROUNDING).sum()
        fewer = min(above + at / 2, edge - above - at / 2)  # on the side with fewer means
        return float(min(1.0, 2 * reached[math.ceil(fewer)]))

    with np.errstate(over="ignore"):
        value, ordered = float(np.exp(np.median(means))), np.exp(means)
    over = f"n = {n} seeds"
    # The interval begins at the `least`-th smallest mean and ends at the `least`-th largest.
    least = int(np.searchsorted(reached, (1 - LEVEL) / 2, side="right"))
    if not least:
        return Estimate(value, over=over)
    return Estimate(value, float(ordered[least - 1]), float(ordered[-least]), over, p_at=p_at)


def detectable(ours: Sequence[float], reference: Sequence[float], alpha: float) -> float | None:
    """Return the ratio nearest to 1, and below it, that the test would detect with a power of 80 %.

    Log ratios are taken to be normal, with the standard deviation of the pairs in which both runs
    reach the accuracy. For normal data the signed-rank test of n pairs is as powerful as a t-test
    of 3 n / pi pairs. None if fewer than two pairs reach the accuracy, or if n pairs are too few
    for p to be as small as alpha.

    Args:
        alpha: two-sided level of the test.
    """
    pairs = _pairs(ours, reference)
    logs = [math.log(a / b) for a, b in pairs if max(a, b) < math.inf and min(a, b) > 0]
    n = len(pairs)
    if len(logs) < 2 or 2 * 0.5**n > alpha:
        return None
    error = np.std(logs, ddof=1) / math.sqrt(3 * n / math.pi)
    return math.exp(-decisions.detectable(Estimate(0.0, error=error, df=n - 1), alpha))


def _pairs(ours: Sequence[float], reference: Sequence[float]) -> list[tuple[float, float]]:
    """Return the pairs in which at least one run reaches the accuracy."""
    return [(a, b) for a, b in zip(ours, reference, strict=True) if min(a, b) < math.inf]


def _log_ratio(ours: float, reference: float) -> float:
    if ours == reference:
        return 0.0
    if math.inf in (ours, reference) or 0 in (ours, reference):
        return math.copysign(NEVER, ours - reference)
    return math.log(ours / reference)


@cache
def _ranks(n: int) -> np.ndarray:
    """Return the distribution of Wilcoxon's W under the hypothesis of no difference.

    W is a sum of the ranks 1 to n, each included with probability one half. The result has the
    probabilities of W = 0, 1, ..., n (n + 1) / 2.
    """
    distribution = np.ones(1)
    for rank in range(1, n + 1):
        distribution = np.convolve(distribution, np.r_[0.5, np.zeros(rank - 1), 0.5])
    return distribution
