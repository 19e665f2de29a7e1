"""Multiple testing, equivalence tests, and the smallest effects that a test can detect.

tests/reports/statistics/test_decisions.py checks that each method has its stated error rate for
estimates of `crossed` with as many seeds and problems as in the arena.
"""

from collections.abc import Sequence

import numpy as np
from scipy import optimize, special, stats

from reports.statistics.estimates import CONFIDENCE_LEVEL, Estimate

POWER = 0.8  # probability with which a test should detect an effect that exists


def adjust_by_holm(ps: Sequence[float]) -> np.ndarray:
    """Return the p-values, adjusted for their number by Holm's method (1979)."""
    order = np.argsort(ps, kind="stable")
    scaled_ps = np.minimum(1, np.sort(ps) * np.arange(len(ps), 0, -1))
    adjusted = np.empty(len(ps))
    adjusted[order] = np.maximum.accumulate(scaled_ps)
    return adjusted


def compute_equivalence_p(difference: Estimate, margin: float) -> float:
    """Return the p of the hypothesis that the absolute difference is at least the margin.

    It is the larger p of two one-sided tests (Schuirmann 1987). p <= 0.05 shows equivalence: the
    90 % interval of the difference then lies between -margin and margin.
    """
    # Half of a two-sided p is that of the one-sided test, if the estimate is on the tested side.
    below, above = difference.p_at(-margin) / 2, difference.p_at(margin) / 2
    below = below if difference.value > -margin else 1 - below
    above = above if difference.value < margin else 1 - above
    return max(below, above)


def compute_detectable_difference(estimate: Estimate, alpha: float = 1 - CONFIDENCE_LEVEL) -> float:
    """Return the smallest true difference that a t-test would detect with probability POWER.

    Args:
        estimate: an estimate with a standard error. The result is on the scale of this error.
        alpha: two-sided level of the test. For m claims together, 0.05 / m is conservative.
    """
    df = min(estimate.df, 1e6)  # a larger number, or infinity, gives the same normal distribution
    critical = stats.t.isf(alpha / 2, df)
    # nctdtrinc returns the noncentrality of t: the difference in units of the standard error.
    return float(estimate.error * special.nctdtrinc(df, 1 - POWER, critical))


def compute_detectable_margin(estimate: Estimate, alpha: float) -> float:
    """Return the smallest margin within which equivalence is shown with probability POWER.

    The true difference is taken to be 0, and equivalence is shown by two one-sided tests.

    Args:
        estimate: an estimate with the standard error that the test will have.
        alpha: level of each of the two tests.
    """
    df = min(estimate.df, 1e6)
    # The standard error that a test computes varies by chance, so power is averaged over quantiles
    # of it. Each gives a critical value: equivalence is shown if the absolute estimate is at most
    # `margin - critical`, all in units of the true standard error.
    probabilities = (np.arange(1000) + 0.5) / 1000
    critical = stats.t.isf(alpha, df) * np.sqrt(stats.chi2.ppf(probabilities, df) / df)

    def compute_excess_power(margin: float) -> float:
        inside = np.maximum(0, 2 * stats.norm.cdf(margin - critical) - 1)
        return inside.mean() - POWER

    return float(estimate.error * optimize.brentq(compute_excess_power, 0, critical.max() + 10))
