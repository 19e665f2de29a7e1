"""Estimates with their 95 % intervals: ratios of durations, correlations, means."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95
ROUNDING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; `None` is what is not known.

    `p_at` is the two-sided p of the truth being a given value. It is at most 0.05 just where the
    interval leaves that value out. Without an interval it is `None`.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    over: str = ""  # what it was computed from, in words
    reason: str = ""  # why there is no value
    error: float | None = None  # standard error, on the scale on which t is computed
    df: float = math.inf  # degrees of freedom of t
    p_at: Callable[[float], float] | None = None

    def covers(self, value: float) -> bool:
        """Return whether the interval holds a value; False where there is no interval."""
        return self.low is not None and self.low <= value <= self.high


def student(
    value: float,
    error: float,
    df: float,
    over: str,
    scale: tuple[Callable, Callable] = (float, float),
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    """Return a value with Student's interval and test.

    Args:
        error: standard error, on the scale.
        df: degrees of freedom; `inf` is the normal distribution.
        scale: leads to the scale on which the value is Student's, and back.
        bounds: least and largest value that there can be.
    """
    to_scale, from_scale = scale
    half = stats.t.ppf((1 + LEVEL) / 2, df) * error
    low, high = (from_scale(to_scale(value) + step) for step in (-half, half))

    def p_at(limit: float) -> float:
        distance = abs(to_scale(value) - to_scale(limit))
        if error < ROUNDING:  # no noise was seen
            return float(distance < ROUNDING)
        return float(2 * stats.t.sf(distance / error, df))

    low, high = max(low, bounds[0]), min(high, bounds[1])
    return Estimate(value, float(low), float(high), over, error=error, df=df, p_at=p_at)


def unvaried(value: float, bounds: tuple[float, float], n: int, over: str) -> Estimate:
    """Return the estimate of n observations that are all equal, which show no standard error.

    By Clopper and Pearson at most a share q of all there could be are otherwise, and these may lie
    anywhere within the bounds: for all correct [1 - q, 1], with q = 1 - 0.025^(1 / n).
    """
    q = 1 - ((1 - LEVEL) / 2) ** (1 / n)
    low, high = (value + q * (bound - value) for bound in bounds)

    def p_at(limit: float) -> float:
        if abs(limit - value) < ROUNDING:
            return 1.0
        reach = abs(bounds[limit > value] - value)
        return min(1.0, 2 * max(0.0, 1 - abs(limit - value) / reach) ** n) if reach else 0.0

    return Estimate(value, low, high, over, p_at=p_at)


def paired_ratio(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
    """Return how many times as long a takes as b: a ratio of geometric means.

    Durations are paired by position; pairs with a value that is not finite are left out. The
    interval and p are a paired t-test's on logarithms; one pair says nothing of noise and has none.
    Without a pair the ratio is `None`.
    """
    pairs = np.array([a, b])
    pairs = pairs[:, (np.isfinite(pairs) & (pairs > 0)).all(axis=0)]
    logs = np.log(pairs[0]) - np.log(pairs[1])
    n = len(logs)
    if n == 0:
        return None
    ratio, over = math.exp(logs.mean()), f"ratio of geometric means, n = {n} pairs"
    if n == 1:
        return Estimate(ratio, over=over)
    return student(ratio, stats.sem(logs), n - 1, over, (math.log, math.exp))


def correlate(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Return Pearson's correlation over the points that are finite in both."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
    n = len(points)
    if n < 3:
        return Estimate(None, reason=f"{n} runs with a value, but a correlation needs 3")
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
        return Estimate(r, r, r, over, p_at=lambda limit: float(limit == r))
    return student(r, 1 / math.sqrt(n - 3), math.inf, over, (math.atanh, math.tanh))


def mean(
    values: Sequence[float], bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Estimate | None:
    """Return the mean of the finite values with Student's interval, which needs two of them.

    Args:
        bounds: least and largest value that there can be.
    """
    finite = [value for value in values if math.isfinite(value)]
    n = len(finite)
    if not finite:
        return None
    middle = float(np.mean(finite))
    if n == 1:
        return Estimate(middle)
    return student(middle, stats.sem(finite), n - 1, f"n = {n} runs", bounds=bounds)
