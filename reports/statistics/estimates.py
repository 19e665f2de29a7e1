"""Estimates with 95 % confidence intervals and tests: ratios of durations, correlations, means."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE_LEVEL = 0.95  # confidence level of all intervals
ROUNDING = 1e-12  # numbers that differ by less are equal


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % confidence interval and test. None stands for what is unknown.

    Args:
        low, high: ends of the interval.
        sample: what the value was computed from, in words: "n = 3 runs".
        reason: why there is no value, or why it is computed in another way than usual.
        error: standard error, on the scale on which Student's t is computed.
        df: degrees of freedom of t.
        p_at: returns the two-sided p of the hypothesis that the true value equals the argument,
            which must be a possible value (for a correlation: above -1 and below 1). p is at most
            0.05 exactly if the argument lies outside the interval. If there is no interval, `p_at`
            is None.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    sample: str = ""
    reason: str = ""
    error: float | None = None
    df: float = math.inf
    p_at: Callable[[float], float] | None = None

    def covers(self, value: float) -> bool:
        """Return whether a value lies in the interval; False if there is no interval."""
        return self.low is not None and self.low <= value <= self.high


def student_estimate(
    value: float,
    error: float,
    df: float,
    sample: str,
    scale: tuple[Callable, Callable] = (float, float),
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    """Return a value with an interval and a test by Student's t distribution.

    Args:
        error: standard error, on the scale to which `scale` converts.
        df: degrees of freedom; `inf` gives the normal distribution.
        sample: what the value was computed from, in words.
        scale: two functions. The first converts to the scale on which the value has Student's
            distribution, such as the logarithm; the second converts back.
        bounds: smallest and largest possible value; the interval is cut off there.
    """
    to_scale, from_scale = scale
    half_width = stats.t.ppf((1 + CONFIDENCE_LEVEL) / 2, df) * error
    low, high = (from_scale(to_scale(value) + step) for step in (-half_width, half_width))

    def p_at(hypothesis: float) -> float:
        distance = abs(to_scale(value) - to_scale(hypothesis))
        if error < ROUNDING:  # the data show no noise
            return float(distance < ROUNDING)
        return float(2 * stats.t.sf(distance / error, df))

    low, high = max(low, bounds[0]), min(high, bounds[1])
    return Estimate(value, float(low), float(high), sample, error=error, df=df, p_at=p_at)


def clopper_pearson_estimate(
    value: float, bounds: tuple[float, float], n: int, sample: str
) -> Estimate:
    """Return the mean of n equal observations, from which no standard error can be computed.

    The interval is Clopper and Pearson's. If more than a share q = 1 - 0.025^(1/n) of the
    population differed from the observed value, n equal observations would have a probability below
    2.5 %, which a 95 % interval allows on each side. By how much these observations differ is
    unknown, so each end of the interval is the mean if a share q of the population lies at one of
    the bounds. If all n completions are correct, the interval is [1 - q, 1].

    Args:
        value: the observed value.
        bounds: smallest and largest possible observation.
        sample: what the value was computed from, in words.
    """
    q = 1 - ((1 - CONFIDENCE_LEVEL) / 2) ** (1 / n)
    low, high = (value + q * (bound - value) for bound in bounds)

    def p_at(hypothesis: float) -> float:
        if abs(hypothesis - value) < ROUNDING:
            return 1.0
        bound = bounds[1] if hypothesis > value else bounds[0]
        if bound == value:
            return 0.0
        # If `hypothesis` is the mean, at least this share of the population differs from `value`.
        share = abs(hypothesis - value) / abs(bound - value)
        return min(1.0, 2 * max(0.0, 1 - share) ** n)

    return Estimate(value, low, high, sample, p_at=p_at)


def estimate_paired_ratio(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
    """Return the ratio a / b of the geometric means of durations; None if there is no pair.

    Durations are paired by position. A pair in which one is missing, infinite or 0 is left out. The
    interval and the test are those of a paired t-test on logarithms. A single pair has neither.
    """
    pairs = np.array([a, b])
    pairs = pairs[:, (np.isfinite(pairs) & (pairs > 0)).all(axis=0)]
    logs = np.log(pairs[0]) - np.log(pairs[1])
    n = len(logs)
    if n == 0:
        return None
    ratio, sample = math.exp(logs.mean()), f"ratio of geometric means, n = {n} pairs"
    if n == 1:
        return Estimate(ratio, sample=sample)
    return student_estimate(ratio, stats.sem(logs), n - 1, sample, (math.log, math.exp))


def correlate_with_h(h_values: Sequence[float], values: Sequence[float]) -> Estimate:
    """Return Pearson's correlation of H and a metric over the runs where both are finite.

    Args:
        h_values: H of each run.
        values: the metric of each run.
    """
    pairs = zip(h_values, values, strict=True)
    points = [(h, value) for h, value in pairs if math.isfinite(h) and math.isfinite(value)]
    n = len(points)
    if n < 3:
        noun = "run" if n == 1 else "runs"
        return Estimate(None, reason=f"{n} {noun} with a value, but a correlation needs 3")
    finite_h, finite_values = zip(*points, strict=True)
    if len(set(finite_h)) == 1:
        return Estimate(None, reason="all runs have the same H: no correlation")
    if len(set(finite_values)) == 1:
        return Estimate(None, reason="all runs have the same value: no correlation")
    r = float(stats.pearsonr(finite_h, finite_values).statistic)
    if not math.isfinite(r):
        return Estimate(None, reason="the values differ by less than rounding: no correlation")
    return estimate_correlation(r, n)


def estimate_correlation(r: float, n: int) -> Estimate:
    """Return a correlation r of n points with Fisher's interval, which needs four points.

    scipy computes this interval only from the points, and the paper prints r without its points.
    """
    sample = f"Pearson's r over n = {n} runs"
    if n < 4:
        return Estimate(r, sample=sample)
    if abs(r) >= 1:
        return Estimate(r, r, r, sample, p_at=lambda hypothesis: float(hypothesis == r))
    return student_estimate(r, 1 / math.sqrt(n - 3), math.inf, sample, (math.atanh, math.tanh))


def estimate_mean(
    values: Sequence[float], bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Estimate | None:
    """Return the mean of the finite values with Student's interval, which needs two values.

    None if no value is finite. `bounds` are the smallest and largest possible value.
    """
    finite = [value for value in values if math.isfinite(value)]
    n = len(finite)
    if not finite:
        return None
    value = float(np.mean(finite))
    if n == 1:
        return Estimate(value)
    return student_estimate(value, stats.sem(finite), n - 1, f"n = {n} runs", bounds=bounds)
