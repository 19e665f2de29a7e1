"""Seconds until an accuracy is reached, of runs of which some never reach it.

Such a run counts as slower than every run that does: its time is infinite. Only orders are used,
so that it does not matter how long it would have taken.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from reports.statistics.estimates import LEVEL, Estimate


def median(times: Sequence[float]) -> Estimate:
    """Return the median with its exact interval between two order statistics.

    The interval needs six values; its upper end is infinite where too many are.
    """
    ordered, n = np.sort(np.asarray(times, dtype=float)), len(times)
    if not n:
        return Estimate(None, reason="no run has a time")
    # Not numpy's median, which subtracts infinities.
    middle = float(sum(ordered[[(n - 1) // 2, n // 2]]) / 2)
    never = int(np.isinf(ordered).sum())
    over = f"n = {n} runs, of which {never} never got there" if never else f"n = {n} runs"
    least = int(stats.binom.ppf((1 - LEVEL) / 2, n, 0.5))  # fewer than these are cut off below
    if not least:
        return Estimate(middle, over=over)

    def p_at(limit: float) -> float:
        below, above = (ordered < limit).sum(), (ordered > limit).sum()
        return float(stats.binomtest(below, below + above).pvalue) if below + above else 1.0

    return Estimate(middle, float(ordered[least - 1]), float(ordered[n - least]), over, p_at=p_at)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return the median over seeds of how many times as long ours takes, with a sign test's p.

    Times are paired by position. Where only theirs never gets there the ratio is 0, where only
    ours does not it is infinite. A seed in which neither does says nothing, and is left out.
    """
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if min(a, b) < math.inf]
    never = math.inf
    return median([1 if a == b else never if a == never or b == 0 else a / b for a, b in pairs])


def detectable(
    ours: Sequence[float], theirs: Sequence[float], alpha: float, power: float = 0.8
) -> float | None:
    """Return the ratio below 1 that a sign test of so many pairs would mostly have seen.

    It takes logarithms of ratios for normal, with the deviation of the pairs in which both get
    there; `None` where these are fewer than two, or no ratio would be seen.

    Args:
        alpha: the test's two-sided level.
        power: how often the ratio is to be seen.
    """
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if min(a, b) < math.inf]
    logs = [math.log(a / b) for a, b in pairs if max(a, b) < math.inf and min(a, b) > 0]
    n = len(pairs)
    wins = int(stats.binom.isf(alpha / 2, n, 0.5)) + 1  # so many of n are significant
    if len(logs) < 2 or wins > n:
        return None
    share = stats.beta.ppf(power, wins, n - wins + 1)  # of pairs won: P(wins or more) is the power
    return math.exp(-stats.norm.ppf(share) * np.std(logs, ddof=1))
