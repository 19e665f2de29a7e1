"""Comparisons of algorithms: accuracy paired by problem and seed, other metrics by seed."""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from statistics import fmean

import pandas as pd

from rapid.artifacts.evaluations import pass_at_k
from reports.statistics import crossed, estimates
from reports.statistics.estimates import Estimate

SHARE_BOUNDS = (0.0, 1.0)  # of an accuracy
DIFFERENCE_BOUNDS = (-1.0, 1.0)  # of a difference of two accuracies
SINGLE_PAIR = "a single pair of runs gives no variance for a test"
PASS_AT = "pass@"  # beginning of the names of the metrics that have scores by problem


def build_score_matrix(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return pass@k of each problem: a row for each seed, a column for each problem.

    Runs without scores are left out. A problem is left out if one of the runs has fewer than k
    graded completions of it.
    """
    by_run = zip(
        runs.seed, (_score_problems(counts, metric) for counts in runs.scores), strict=True
    )
    rows = {seed: row for seed, row in by_run if row}
    return pd.DataFrame.from_dict(rows, orient="index").dropna(axis="columns")


def compute_run_accuracies(runs: pd.DataFrame, metric: str) -> list[float]:
    """Return each run's mean pass@k over its problems; NaN for a run without scores."""
    by_run = (_score_problems(counts, metric).values() for counts in runs.scores)
    return [fmean(row) if row else math.nan for row in by_run]


def _score_problems(counts: dict[str, tuple[int, int]], metric: str) -> dict[str, float]:
    """Return pass@k of each problem with at least k graded completions.

    `counts` has the numbers of graded and of correct completions of each problem.
    """
    k = int(metric.removeprefix(PASS_AT))
    return {name: pass_at_k(n, c, k) for name, (n, c) in counts.items() if n >= k}


def estimate_accuracy(runs: pd.DataFrame, metric: str) -> Estimate | None:
    """Return the mean accuracy with its interval; None if no run has scores by problem.

    It is also None if some runs have an accuracy but no scores by problem, because the interval
    would leave out these runs.
    """
    matrix = build_score_matrix(runs, metric)
    is_partial = (runs[metric].notna() & (runs.scores.map(len) == 0)).any()
    return (
        None
        if matrix.empty or is_partial
        else crossed.estimate_mean(matrix.to_numpy(), SHARE_BOUNDS)
    )


def estimate_difference(a: pd.DataFrame, b: pd.DataFrame, metric: str) -> Estimate | None:
    """Return the accuracy of a minus that of b, over the problems and seeds that both have.

    None if a and b have no seed, or no problem, in common.
    """
    return estimate_contrast([(a, 1), (b, -1)], metric)


def estimate_contrast(
    terms: Sequence[tuple[pd.DataFrame, float]],
    metric: str,
    clusters: Mapping[str, str] | None = None,
) -> Estimate | None:
    """Return a linear contrast of algorithms in a metric: a - b, (a - b) - (c - d), ...

    It uses the seeds that all algorithms have, and for pass@k the problems that all have. Seeds are
    a random factor, and for pass@k problems are another one. With a single seed there is no
    interval and no test.

    Args:
        terms: the runs of each algorithm, and the coefficient of the algorithm in the contrast.
        clusters: the cluster of each problem, if problems are sampled in clusters.

    Returns:
        None if the algorithms have no seed, or no problem, in common.
    """
    if metric.startswith(PASS_AT):
        weighted = [coefficient * build_score_matrix(runs, metric) for runs, coefficient in terms]
    else:
        weighted = [
            coefficient * runs.set_index("seed")[[metric]].dropna() for runs, coefficient in terms
        ]
    seeds = reduce(pd.Index.intersection, [rows.index for rows in weighted])
    columns = reduce(pd.Index.intersection, [rows.columns for rows in weighted])
    if seeds.empty or columns.empty:
        return None
    total = reduce(add, [rows.loc[seeds, columns] for rows in weighted])
    if not metric.startswith(PASS_AT):
        return estimates.estimate_mean(list(total[metric]))
    matrix = total.to_numpy()
    if len(seeds) == 1:  # the noise of training is unknown
        return Estimate(float(matrix.mean()), sample="n = 1 seed", reason=SINGLE_PAIR)
    if clusters:
        matrix = crossed.merge_clusters(matrix, [clusters[name] for name in columns])
    coefficients = [coefficient for _, coefficient in terms]
    # The contrast's bounds: each accuracy is from 0 to 1.
    low = sum(min(coefficient, 0.0) for coefficient in coefficients)
    high = sum(max(coefficient, 0.0) for coefficient in coefficients)
    return crossed.estimate_mean(matrix, (low, high))


def estimate_ratio(a: pd.DataFrame, b: pd.DataFrame, metric: str) -> Estimate | None:
    """Return the ratio a / b of a metric over the seeds that both have; None without any.

    Runtimes are compared only between runs on the same hardware. Those in the record of an earlier
    arena have no column `hardware`: they were scaled to the hardware of the others.
    """
    both = a.set_index("seed").join(b.set_index("seed"), how="inner", rsuffix="_b")
    if metric == "runtime" and "hardware_b" in both:
        both = both[both.hardware == both.hardware_b]
    return estimates.estimate_paired_ratio(list(both[metric]), list(both[f"{metric}_b"]))
