"""Intervals of a mean over seeds and problems, which both are samples of what could have been.

A score matrix has a row for each seed and a column for each problem. Seeds and problems cross: every
model answers the same problems. Rows and columns are drawn independently, with replacement, and a
replicate is the mean over the drawn ones (Owen 2007, the pigeonhole bootstrap). On each side n - 1
of n are drawn (Rao and Wu 1988): the variance between the seeds is then right for as few as two of
them, and not too small by (n - 1) / n. The noise within a cell is counted more than once, so that
intervals err towards too wide.
"""

from functools import lru_cache

import numpy as np

from reports.statistics.estimates import LEVEL, Estimate

REPLICATES = 10_000


def estimate(matrix: np.ndarray, bounds: tuple[float, float]) -> Estimate:
    """Return the mean of a score matrix, its interval, and the p of the mean being 0.

    p is at most 0.05 just where the interval leaves 0 out, rounding apart; it is `None` where the
    scores do not vary.

    Args:
        matrix: (seeds, problems), at least one of each; one seed gives an interval over problems.
        bounds: least and largest value that a score can have.
    """
    seeds, problems = matrix.shape
    mean, over = float(matrix.mean()), f"n = {seeds} seeds and {problems} problems"
    if np.ptp(matrix) < 1e-12:
        return Estimate(mean, *_without_variation(mean, bounds, problems), over=over)
    drawn = replicates(matrix)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    # A replicate that is 0 but for rounding counts on both sides.
    side = min((drawn < 1e-12).sum(), (drawn > -1e-12).sum())
    p = min(1.0, 2 * (side + 1) / (len(drawn) + 1))
    return Estimate(mean, float(low), float(high), float(p), over)


def replicates(matrix: np.ndarray, count: int = REPLICATES) -> np.ndarray:
    """Return means of `count` resamples, shape (count,); the same for the same matrix."""
    seeds, problems = matrix.shape
    rows, columns = _weights(seeds, count, 0), _weights(problems, count, 1)
    return ((rows @ matrix) * columns).sum(axis=1)


@lru_cache(maxsize=32)
def _weights(n: int, count: int, stream: int) -> np.ndarray:
    """Return how much each of n counts in each resample: rows of shares that sum to 1."""
    drawn = max(1, n - 1)
    chance = np.random.default_rng([stream, n])
    return chance.multinomial(drawn, np.full(n, 1 / n), size=count) / drawn


def _without_variation(
    mean: float, bounds: tuple[float, float], problems: int
) -> tuple[float, float]:
    """Return an interval where all scores are equal, of which resampling would make a point.

    By Clopper and Pearson at most a share q of all problems behaves otherwise, and these may have
    any score: for all correct [1 - q, 1], with q = 1 - 0.025^(1 / problems).
    """
    q = 1 - ((1 - LEVEL) / 2) ** (1 / problems)
    least, largest = bounds
    return mean - q * (mean - least), mean + q * (largest - mean)
