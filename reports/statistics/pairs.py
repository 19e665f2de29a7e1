"""Comparisons of two algorithms: accuracy paired by problem and seed, durations paired by seed."""

import math
from statistics import fmean

import pandas as pd

from rapid.artifacts.evaluations import pass_at_k
from reports.statistics.crossed import estimate
from reports.statistics.estimates import Estimate, paired_ratio

SHARES, DIFFERENCES = (0.0, 1.0), (-1.0, 1.0)  # bounds of an accuracy, and of a difference of two


def scores(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return pass@k of each problem: a row for each seed, a column for each problem.

    Runs without scores are left out. A problem is left out if one of the runs has fewer than k
    graded completions of it.

    Args:
        runs: rows of one algorithm in the data frame of `collect`.
        metric: pass@k.
    """
    by_run = zip(runs.seed, (_score(counts, metric) for counts in runs.scores), strict=True)
    rows = {seed: row for seed, row in by_run if row}
    return pd.DataFrame.from_dict(rows, orient="index").dropna(axis="columns")


def mean_scores(runs: pd.DataFrame, metric: str) -> list[float]:
    """Return each run's mean pass@k over its problems; NaN for a run without scores."""
    by_run = (_score(counts, metric).values() for counts in runs.scores)
    return [fmean(row) if row else math.nan for row in by_run]


def _score(counts: dict[str, tuple[int, int]], metric: str) -> dict[str, float]:
    """Return pass@k of each problem of a run with at least k graded completions.

    Args:
        counts: graded and correct completions by problem.
    """
    k = int(metric.removeprefix("pass@"))
    return {name: pass_at_k(n, c, k) for name, (n, c) in counts.items() if n >= k}


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
    of_a, of_b = scores(a, metric), scores(b, metric)
    seeds, problems = of_a.index.intersection(of_b.index), of_a.columns.intersection(of_b.columns)
    if seeds.empty or problems.empty:
        return None
    paired = of_a.loc[seeds, problems] - of_b.loc[seeds, problems]
    return estimate(paired.to_numpy(), DIFFERENCES)


def ratio(a: pd.DataFrame, b: pd.DataFrame, metric: str) -> Estimate | None:
    """Return the ratio of durations a / b, over the seeds that both have; None if none."""
    pairs = a.set_index("seed")[metric].to_frame("a").join(b.set_index("seed")[metric].rename("b"))
    return paired_ratio(list(pairs.a), list(pairs.b))
