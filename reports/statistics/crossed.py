"""Intervals of a mean over seeds and problems, which both are samples of what could have been.

A score matrix has a row for each seed and a column for each problem. Seeds and problems cross:
every model answers the same problems. The variance of the mean is that of an analysis of variance
with both factors random, and its degrees of freedom are Satterthwaite's (1946).

A bootstrap that draws seeds and problems (Owen 2007) is not used. With three seeds its 95 %
interval misses too often where seeds differ, and with twenty it is too wide where they hardly do.
`python -m tests.reports.statistics.rates` prints the error rates of both.
"""

import math

import numpy as np

from reports.statistics.estimates import ROUNDING, Estimate, student, unvaried

TIE = 1e-9  # mean squares that differ by a smaller share are equal: the rest is rounding


def estimate(matrix: np.ndarray, bounds: tuple[float, float]) -> Estimate:
    """Return the mean of a score matrix with its interval.

    Args:
        matrix: (seeds, problems), at least one of each; of one of either the other's noise counts.
        bounds: least and largest value that a score can have.
    """
    seeds, problems = matrix.shape
    mean, over = float(matrix.mean()), f"n = {seeds} seeds and {problems} problems"
    if np.ptp(matrix) < ROUNDING:
        return unvaried(mean, bounds, problems, over)
    rows, columns = matrix.mean(1, keepdims=True) - mean, matrix.mean(0) - mean
    rest = matrix - mean - rows - columns
    free = seeds - 1, problems - 1, (seeds - 1) * (problems - 1)
    sums = problems * (rows**2).sum(), seeds * (columns**2).sum(), (rest**2).sum()
    squares = [total / max(1, n) for total, n in zip(sums, free, strict=True)]
    # Each of the three estimates at least the variance within a cell. Where the sum is no larger
    # than the largest of them, because of chance, that one stands. Of equal ones the one with the
    # fewest degrees of freedom stands, which gives the widest interval: all three are equal where
    # a single cell differs from the others.
    combined, largest = squares[0] + squares[1] - squares[2], max(squares)
    if combined > largest * (1 + TIE):
        parts = sum(square**2 / n for square, n in zip(squares, free, strict=True) if n)
        variance, df = combined, combined**2 / parts
    else:
        pairs = zip(squares, free, strict=True)
        df = min(n for square, n in pairs if square >= largest * (1 - TIE))
        variance = largest
    error = math.sqrt(variance / (seeds * problems))
    return student(mean, error, df, over, bounds=bounds)
