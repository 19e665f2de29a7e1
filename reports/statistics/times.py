"""Training time until a target accuracy, where some runs never reach it.

A run that never reaches the accuracy has an infinite time and counts as slower than all others. The
statistics are medians and rank tests, which do not need the time that such a run would have taken.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy import stats

from reports.statistics import decisions
from reports.statistics.estimates import CONFIDENCE_LEVEL, ROUNDING, Estimate

# The absolute log ratio of two times if one of them is infinite or 0. It is finite, so that means
# can be computed, and so large that exp(INFINITE_LOG_RATIO / 4) overflows to infinity. So its mean
# with an ordinary log ratio still gives an infinite ratio, and so does the mean of that mean with
# an ordinary log ratio.
INFINITE_LOG_RATIO = 4000.0
NEITHER_REACHED = "no run of either algorithm reached the target accuracy"


def median_time(times: Sequence[float]) -> Estimate:
    """Return the median time with its exact interval, which lies between two of the times.

    The interval needs at least six runs. Its upper end is infinite if too many of them never reach
    the accuracy.
    """
    if not len(times):
        return Estimate(None, reason="no run has a time")
    never = int(np.isinf(times).sum())
    sample = f"n = {len(times)} runs"
    return _median_estimate(
        times, f"{sample}, of which {never} never reached the target accuracy" if never else sample
    )


def median_ratio(ours: Sequence[float], reference: Sequence[float]) -> Estimate:
    """Return the median of the ratios of times ours / reference, with the sign test's interval.

    Times are paired by position. A pair in which neither run reaches the accuracy is left out. The
    interval of `time_ratio`, which averages pairs, ends at 0 or infinity as soon as a few pairs
    have such a ratio. The interval of the median ends there only if many pairs have such a ratio.
    """
    logs = [_log_ratio(*pair) for pair in _select_reached(ours, reference)]
    if not logs:
        return Estimate(None, reason=NEITHER_REACHED)
    median = _median_estimate(logs, f"n = {len(logs)} seeds")
    with np.errstate(over="ignore"):
        ends = [
            None if end is None else float(np.exp(end))
            for end in (median.value, median.low, median.high)
        ]
    return Estimate(*ends, median.sample)


def _median_estimate(values: Sequence[float], sample: str) -> Estimate:
    """Return the median with its exact interval, which is that of a sign test."""
    ordered, n = np.sort(values), len(values)
    median = float(np.median(ordered))
    # The interval begins at the value of this rank from below, and ends at the value of the same
    # rank from above.
    rank = int(stats.binom.ppf((1 - CONFIDENCE_LEVEL) / 2, n, 0.5))
    if not rank:
        return Estimate(median, sample=sample)
    return Estimate(median, float(ordered[rank - 1]), float(ordered[n - rank]), sample)


def time_ratio(ours: Sequence[float], reference: Sequence[float]) -> Estimate:
    """Return the ratio of times ours / reference, by Wilcoxon's signed-rank test of log ratios.

    Times are paired by position. The value is Hodges and Lehmann's (1963): the exponential of the
    median of all means of two log ratios. Interval and p are those of the exact test. A pair in
    which only one run reaches the accuracy has the ratio 0 or infinity, and a rank above all finite
    ratios. A pair in which neither run reaches it is left out.
    """
    logs = np.array([_log_ratio(*pair) for pair in _select_reached(ours, reference)])
    n = len(logs)
    if not n:
        return Estimate(None, reason=NEITHER_REACHED)
    means = np.sort((logs[:, None] + logs)[np.triu_indices(n)] / 2)
    # P(W <= w) for each w, where W is the sum of the ranks of the ratios above the tested ratio. W
    # is also the number of `means` above its logarithm, which `p_at` counts.
    cumulative = np.cumsum(_rank_sum_distribution(n))

    def p_at(ratio: float) -> float:
        log_ratio = math.log(ratio)
        above = (means > log_ratio + ROUNDING).sum() + (
            abs(means - log_ratio) <= ROUNDING
        ).sum() / 2
        smaller_sum = min(above, means.size - above)
        # Ties count as one half; rounding up makes p too large rather than too small.
        return float(min(1.0, 2 * cumulative[math.ceil(smaller_sum)]))

    with np.errstate(over="ignore"):
        value, ratios = float(np.exp(np.median(means))), np.exp(means)
    sample = f"n = {n} seeds"
    # The interval begins at the ratio of this rank from below, and ends at the ratio of the same
    # rank from above.
    rank = int(np.searchsorted(cumulative, (1 - CONFIDENCE_LEVEL) / 2, side="right"))
    if not rank:
        return Estimate(value, sample=sample)
    return Estimate(value, float(ratios[rank - 1]), float(ratios[-rank]), sample, p_at=p_at)


def compute_detectable_ratio(
    ours: Sequence[float], reference: Sequence[float], alpha: float
) -> float | None:
    """Return the largest ratio below 1 that the test of `time_ratio` detects with a power of 80 %.

    Log ratios are assumed to be normal, with the standard deviation of the pairs in which both runs
    reach the accuracy. For normal data the signed-rank test of n pairs is as powerful as a t-test
    of 3 n / pi pairs. None if there are fewer than two pairs in which both runs reach the accuracy,
    or if n pairs are too few for p to be as small as alpha, the two-sided level of the test.
    """
    pairs = _select_reached(ours, reference)
    logs = [math.log(a / b) for a, b in pairs if max(a, b) < math.inf and min(a, b) > 0]
    n = len(pairs)
    if len(logs) < 2 or 2 * 0.5**n > alpha:
        return None
    error = np.std(logs, ddof=1) / math.sqrt(3 * n / math.pi)
    return math.exp(
        -decisions.compute_detectable_difference(Estimate(0.0, error=error, df=n - 1), alpha)
    )


def _select_reached(ours: Sequence[float], reference: Sequence[float]) -> list[tuple[float, float]]:
    """Return the pairs in which at least one run reaches the accuracy."""
    return [(a, b) for a, b in zip(ours, reference, strict=True) if min(a, b) < math.inf]


def _log_ratio(ours: float, reference: float) -> float:
    if ours == reference:
        return 0.0
    if math.inf in (ours, reference) or 0 in (ours, reference):
        return math.copysign(INFINITE_LOG_RATIO, ours - reference)
    return math.log(ours / reference)


@cache
def _rank_sum_distribution(n: int) -> np.ndarray:
    """Return the distribution of Wilcoxon's W under the hypothesis of no difference.

    W is a sum of the ranks 1 to n, each included with probability one half. The result has the
    probabilities of W = 0, 1, ..., n (n + 1) / 2.
    """
    distribution = np.ones(1)
    for rank in range(1, n + 1):
        distribution = np.convolve(distribution, np.r_[0.5, np.zeros(rank - 1), 0.5])
    return distribution
