"""Confidence intervals of a mean over seeds and problems, where both are random samples.

A score matrix has a row for each seed and a column for each problem. The two factors are crossed:
the model of every seed answers the same problems. The variance of the mean is that of a two-way
analysis of variance in which both factors are random. The degrees of freedom are Satterthwaite's
(1946).

A bootstrap of seeds and problems (Owen 2007) is not used. With three seeds that differ, its 95 %
interval covers the true value too rarely. With twenty seeds that hardly differ, the interval is too
wide.
"""

import math
from collections.abc import Sequence

import numpy as np

from reports.statistics.estimates import (
    ROUNDING,
    Estimate,
    clopper_pearson_estimate,
    student_estimate,
)

TIE = 1e-9  # relative difference up to which two mean squares count as equal, despite rounding


def estimate_mean(matrix: np.ndarray, bounds: tuple[float, float]) -> Estimate:
    """Return the mean of a score matrix with its 95 % interval.

    Args:
        matrix: shape (seeds, problems). With a single seed the interval reflects the noise of
            problems only, and with a single problem that of seeds only.
        bounds: smallest and largest possible score.
    """
    seeds, problems = matrix.shape
    mean, sample = float(matrix.mean()), f"n = {seeds} seeds and {problems} problems"
    # If all scores are equal, no variance can be estimated. The seeds are then not counted, because
    # they answer the same problems.
    if np.ptp(matrix) < ROUNDING:
        return clopper_pearson_estimate(mean, bounds, problems, sample)
    mean_squares, dfs = compute_mean_squares(matrix)
    # The variance of the mean is estimated by MS(seeds) + MS(problems) - MS(residuals), divided by
    # the number of cells; MS is a mean square. By chance this sum can be smaller than one of the
    # three mean squares. As each of them estimates at least the variance within a cell, the largest
    # is then used. If several are equally large (as all three are if a single cell differs from the
    # others), the one with the fewest degrees of freedom is used, which gives the widest interval.
    ms_seeds, ms_problems, ms_residuals = mean_squares
    combined, largest = ms_seeds + ms_problems - ms_residuals, max(mean_squares)
    if combined > largest * (1 + TIE):
        variance, df = combined, satterthwaite_df(combined, mean_squares, dfs)
    else:
        pairs = zip(mean_squares, dfs, strict=True)
        df = min(part_df for part, part_df in pairs if part >= largest * (1 - TIE))
        variance = largest
    error = math.sqrt(variance / (seeds * problems))
    return student_estimate(mean, error, df, sample, bounds=bounds)


def compute_mean_squares(matrix: np.ndarray) -> tuple[list[float], tuple[int, int, int]]:
    """Return the mean squares of seeds, problems and residuals, and their degrees of freedom."""
    seeds, problems = matrix.shape
    mean = matrix.mean()
    rows, columns = matrix.mean(1, keepdims=True) - mean, matrix.mean(0) - mean
    residuals = matrix - mean - rows - columns
    dfs = seeds - 1, problems - 1, (seeds - 1) * (problems - 1)
    sums = problems * (rows**2).sum(), seeds * (columns**2).sum(), (residuals**2).sum()
    return [float(total) / max(1, n) for total, n in zip(sums, dfs, strict=True)], dfs


def satterthwaite_df(combined: float, parts: Sequence[float], dfs: Sequence[float]) -> float:
    """Return the degrees of freedom of a sum or difference of independent mean squares."""
    return combined**2 / sum(part**2 / n for part, n in zip(parts, dfs, strict=True) if n)


def merge_clusters(matrix: np.ndarray, clusters: Sequence[str]) -> np.ndarray:
    """Return a score matrix with a column for each cluster of problems, and the same row means.

    Problems of a cluster resemble each other, so that their scores are not independent. From the
    new matrix, `estimate_mean` computes an interval in which clusters are the random sample. This
    is the cluster-robust variance of Cameron, Gelbach and Miller (2011) with seeds as the second
    factor. The weight of a cluster is its number of problems.

    Args:
        matrix: a score matrix with a column for each problem.
        clusters: the name of each problem's cluster.
    """
    names, codes = np.unique(clusters, return_inverse=True)
    mean, (_, problems) = matrix.mean(), matrix.shape
    sums = (matrix - mean) @ np.eye(len(names))[codes]
    return mean + sums * (len(names) / problems)
