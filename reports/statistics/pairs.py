"""Comparisons of algorithms: accuracy paired by problem and seed, other metrics by seed."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

import pandas as pd

from rapid.artifacts.evaluations import pass_at_k
from reports.statistics.crossed import by_cluster, estimate
from reports.statistics.estimates import Estimate, mean, paired_ratio

SHARES, DIFFERENCES = (0.0, 1.0), (-1.0, 1.0)  # bounds of an accuracy, and of a difference of two
PASS_AT = "pass@"  # beginning of the names of the metrics that have scores by problem


def scores(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return pass@k of each problem: a row for each seed, a column for each problem.

    Runs without scores are left out. A problem is left out if one of the runs has fewer than k
    graded completions of it.

    Args:
        runs: rows of one algorithm in the data frame of `collect`.
        metric: pass@k.
    """
    k = int(metric.removeprefix(PASS_AT))
    rows = {
        seed: {name: pass_at_k(n, c, k) for name, (n, c) in counts.items() if n >= k}
        for seed, counts in zip(runs.seed, runs.scores, strict=True)
    }
    rows = {seed: row for seed, row in rows.items() if row}
    return pd.DataFrame.from_dict(rows, orient="index").dropna(axis="columns")


def accuracy(runs: pd.DataFrame, metric: str) -> Estimate | None:
    """Return the mean accuracy with its interval; None if no run has scores by problem.

    Also None if some runs have an accuracy but no scores by problem: the interval would then be
    that of the other runs only.
    """
    matrix = scores(runs, metric)
    is_partial = (runs[metric].notna() & (runs.scores.map(len) == 0)).any()
    return None if matrix.empty or is_partial else estimate(matrix.to_numpy(), SHARES)


def difference(a: pd.DataFrame, b: pd.DataFrame, metric: str) -> Estimate | None:
    """Return the accuracy of a minus that of b, over the problems and seeds that both have.

    None if a and b have no seed, or no problem, in common.
    """
    return contrast([(a, 1), (b, -1)], metric)


def contrast(
    terms: Sequence[tuple[pd.DataFrame, float]],
    metric: str,
    clusters: Mapping[str, str] | None = None,
) -> Estimate | None:
    """Return the sum of a metric of algorithms, each times a factor: a - b, (a - b) - (c - d), ...

    It is over the seeds that all algorithms have, and for pass@k over the problems that all have.
    Then seeds and problems are both at random; for other metrics only seeds are.

    Args:
        terms: the runs of each algorithm, and its factor.
        clusters: the cluster of each problem, if problems are sampled in clusters.

    Returns:
        None if the algorithms have no seed, or no problem, in common.
    """
    if metric.startswith(PASS_AT):
        weighted = [factor * scores(runs, metric) for runs, factor in terms]
    else:
        weighted = [factor * runs.set_index("seed")[[metric]].dropna() for runs, factor in terms]
    seeds = reduce(pd.Index.intersection, [rows.index for rows in weighted])
    columns = reduce(pd.Index.intersection, [rows.columns for rows in weighted])
    if seeds.empty or columns.empty:
        return None
    total = reduce(add, [rows.loc[seeds, columns] for rows in weighted])
    if not metric.startswith(PASS_AT):
        return mean(list(total[metric]))
    matrix = total.to_numpy()
    if clusters:
        matrix = by_cluster(matrix, [clusters[name] for name in columns])
    factors = [factor for _, factor in terms]
    return estimate(matrix, (sum(min(f, 0.0) for f in factors), sum(max(f, 0.0) for f in factors)))


def ratio(a: pd.DataFrame, b: pd.DataFrame, metric: str) -> Estimate | None:
    """Return the ratio of durations a / b, over the seeds that both have; None if none."""
    pairs = a.set_index("seed")[metric].to_frame("a").join(b.set_index("seed")[metric].rename("b"))
    return paired_ratio(list(pairs.a), list(pairs.b))
