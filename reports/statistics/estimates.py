"""Estimates with their 95 % intervals: ratios of durations, correlations, means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; `None` is what is not known.

    Args:
        value: the estimate, or `None` for the `reason`.
        low, high: ends of the interval.
        p: two-sided p of no difference.
        over: what it was computed from, in words.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    over: str = ""
    reason: str = ""

    def covers(self, value: float) -> bool:
        """Return whether the interval holds a value; False where there is no interval."""
        return self.low is not None and self.low <= value <= self.high


def paired_ratio(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
    """Return how many times as long a takes as b: a ratio of geometric means.

    Durations are paired by position; pairs with a value that is not finite are left out. The
    interval and p are a paired t-test's on logarithms; one pair says nothing of noise and has none.
    Without a pair the ratio is `None`.
    """
    logs = np.array(
        [
            math.log(x / y)
            for x, y in zip(a, b, strict=True)
            if math.isfinite(x) and math.isfinite(y) and x > 0 and y > 0
        ]
    )
    n = len(logs)
    if n == 0:
        return None
    ratio, over = math.exp(logs.mean()), f"ratio of geometric means, n = {n} pairs"
    if n == 1:
        return Estimate(ratio, over=over)
    if np.ptp(logs) < 1e-12:  # identical pairs: no noise was seen
        return Estimate(ratio, ratio, ratio, 1.0 if abs(logs.mean()) < 1e-12 else 0.0, over)
    test = stats.ttest_1samp(logs, 0)
    low, high = test.confidence_interval(LEVEL)
    return Estimate(ratio, math.exp(low), math.exp(high), float(test.pvalue), over)


def correlate(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Return Pearson's correlation over the points that are finite in both."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
    n = len(points)
    if n < 3:
        return Estimate(None, reason=f"{n} runs with a value, and a correlation needs 3")
    xs, ys = zip(*points, strict=True)
    if len(set(xs)) == 1:
        return Estimate(None, reason="all runs have the same H: no correlation")
    if len(set(ys)) == 1:
        return Estimate(None, reason="all runs have the same value: no correlation")
    r = float(stats.pearsonr(xs, ys).statistic)
    if not math.isfinite(r):
        return Estimate(None, reason="the values differ by less than rounding: no correlation")
    return correlation(r, n)


def correlation(r: float, n: int) -> Estimate:
    """Return a correlation over n points with Fisher's interval, which needs four points.

    scipy computes the same interval, but only from the points themselves: the paper prints none.
    """
    over = f"Pearson's r over n = {n} runs"
    if n < 4:
        return Estimate(r, over=over)
    if abs(r) >= 1:
        return Estimate(r, r, r, over=over)
    z, step = math.atanh(r), stats.norm.ppf((1 + LEVEL) / 2) / math.sqrt(n - 3)
    return Estimate(r, math.tanh(z - step), math.tanh(z + step), over=over)


def mean(values: Sequence[float]) -> Estimate | None:
    """Return the mean of the finite values with Student's interval, which needs two of them."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    middle = float(np.mean(finite))
    if len(finite) == 1:
        return Estimate(middle)
    half = stats.t.ppf((1 + LEVEL) / 2, len(finite) - 1) * stats.sem(finite)
    return Estimate(middle, middle - half, middle + half)


def holm(ps: Sequence[float]) -> np.ndarray:
    """Return p-values adjusted for having made all these comparisons (Holm 1979)."""
    order = np.argsort(ps, kind="stable")
    steps = np.minimum(1, np.sort(ps) * np.arange(len(ps), 0, -1))
    adjusted = np.empty(len(ps))
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted
