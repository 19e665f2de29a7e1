"""The target accuracy of a benchmark in the arena, and the chance to reach it without learning."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.statistics import curves

GAIN_SHARE = 0.75  # a run reaches the target with this share of PG's gain in accuracy


@dataclass(frozen=True)
class Target:
    """A target accuracy, and the probability that a model reaches it without learning.

    Args:
        start: mean accuracy of the model before RL, on the test problems.
        noise: standard deviation of this model's accuracy over repeated evaluations.
        level: `start` plus three quarters of PG's gain on the test problems, rounded to three
            decimals; NaN if there are no runs.
        chance: probability that a model that learns nothing reaches `level`.
        chance_at_set_target: the same for the target accuracy in the parameters, or for `level` if
            they have none.
    """

    start: float
    noise: float
    level: float
    chance: float
    chance_at_set_target: float


def compute_target(
    untrained: pd.DataFrame,
    pg_runs: pd.DataFrame,
    metric: str,
    set_target: float | None,
    evaluations: int,
) -> Target:
    """Return the target accuracy of a benchmark, computed from accuracies on the test problems.

    Args:
        untrained: rows of the model before RL in the data frame of all runs, one per evaluation.
        set_target: the target accuracy in the parameters.
        evaluations: how often a run is evaluated during and after training.
    """
    accuracies = untrained[metric].dropna().to_numpy()
    start, final = (float(runs[metric].mean()) for runs in (untrained, pg_runs))
    level = start + GAIN_SHARE * (final - start)
    level = math.floor(1000 * level + 0.5) / 1000 if math.isfinite(level) else level
    if len(accuracies) == 1:
        (scores,) = untrained[untrained[metric].notna()].scores
        noise = compute_sampling_error(scores)
    else:
        noise = float(accuracies.std(ddof=1)) if len(accuracies) else math.nan
    chances = (
        curves.compute_chance_to_reach(accuracy, start, noise, evaluations)
        for accuracy in (level, level if set_target is None else set_target)
    )
    return Target(start, noise, level, *chances)


def compute_sampling_error(scores: dict[str, tuple[int, int]]) -> float:
    """Return the standard deviation of Pass@1 over repeated evaluations on the same problems.

    It is estimated from one evaluation. For the share c / n of correct completions of a problem,
    c (n - c) / (n^2 (n - 1)) is an unbiased estimate of the variance. The result is NaN if a
    problem has fewer than two graded completions.

    Args:
        scores: the numbers n of graded and c of correct completions by problem.
    """
    counts = np.array([*scores.values()], dtype=float).reshape(-1, 2)
    graded, correct = counts.T
    if not counts.size or graded.min() < 2:
        return math.nan
    variances = correct * (graded - correct) / (graded**2 * (graded - 1))
    return float(np.sqrt(variances.sum()) / len(counts))
