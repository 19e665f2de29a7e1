"""Decisions on estimates: several claims at once, equality, and effects too small to detect.

Each of these holds its stated error rate with the estimates of `crossed` at the arena's size
(tests/reports/statistics/test_decisions.py).
"""

from collections.abc import Sequence

import numpy as np
from scipy import optimize, special, stats

from reports.statistics.estimates import LEVEL, Estimate

POWER = 0.8  # how often a test is to find what is there


def holm(ps: Sequence[float]) -> np.ndarray:
    """Return p-values adjusted for having made all these comparisons (Holm 1979)."""
    order = np.argsort(ps, kind="stable")
    steps = np.minimum(1, np.sort(ps) * np.arange(len(ps), 0, -1))
    adjusted = np.empty(len(ps))
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted


def equivalence(difference: Estimate, margin: float) -> float:
    """Return the p of a difference of the margin or more, by two one-sided tests (Schuirmann 1987).

    At most 0.05 says that the truth lies within the margin on both sides: then the 90 % interval
    does.
    """
    below, above = difference.p_at(-margin) / 2, difference.p_at(margin) / 2
    below = below if difference.value > -margin else 1 - below
    above = above if difference.value < margin else 1 - above
    return max(below, above)


def detectable(estimate: Estimate, alpha: float = 1 - LEVEL) -> float:
    """Return the least true difference that a t-test with this standard error would mostly see.

    Args:
        estimate: an estimate with a standard error; the answer is on the scale of that.
        alpha: the test's two-sided level. For a family of m claims 0.05 / m is on the safe side.
    """
    df = min(estimate.df, 1e6)  # beyond it the distribution is the normal one
    critical = stats.t.isf(alpha / 2, df)
    return float(estimate.error * special.nctdtrinc(df, 1 - POWER, critical))


def provable(estimate: Estimate, alpha: float) -> float:
    """Return the least margin that two one-sided tests would mostly show if the truth were 0.

    Args:
        estimate: an estimate with a standard error, as that of the runs to come.
        alpha: the level of each of the tests.
    """
    df = min(estimate.df, 1e6)
    shares = (np.arange(1000) + 0.5) / 1000
    critical = stats.t.isf(alpha, df) * np.sqrt(stats.chi2.ppf(shares, df) / df)

    def short(margin: float) -> float:
        inside = np.maximum(0, 2 * stats.norm.cdf(margin - critical) - 1)
        return inside.mean() - POWER

    return float(estimate.error * optimize.brentq(short, 0, critical.max() + 10))
