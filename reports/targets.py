"""The target accuracy of a benchmark in the arena, and the chance to reach it without learning.

The arena uses the target accuracy in the parameters (`reach`), if there is one, and otherwise the
one that `compute_target` computes from runs. PG is policy gradient, the baseline.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.statistics import curves

# With a larger chance to reach a computed target without learning, the target is no end point.
MAX_CHANCE = 0.05


@dataclass(frozen=True)
class Target:
    """The computed target accuracy, and the chance to reach a target without learning.

    Args:
        start: mean accuracy of the model before RL, on the test problems.
        noise: standard deviation of this model's accuracy over repeated evaluations.
        computed: the computed target accuracy: `start` plus a share of PG's gain on the test
            problems (`gain_share` in the parameters), rounded to three decimals; NaN if there are
            no runs.
        chance_of_computed: probability that a model that learns nothing reaches `computed`.
        chance_of_used: probability that it reaches the target accuracy that the arena uses.
    """

    start: float
    noise: float
    computed: float
    chance_of_computed: float
    chance_of_used: float


def compute_target(
    untrained: pd.DataFrame,
    pg_runs: pd.DataFrame,
    metric: str,
    gain_share: float,
    reach: float | None,
    samples: Sequence[int],
) -> Target:
    """Return the target accuracy of a benchmark, computed from accuracies on the test problems.

    Args:
        untrained: rows of the model before RL in the data frame of all runs, one per evaluation.
        gain_share: share of PG's gain in accuracy with which a run reaches the computed target.
        reach: the target accuracy in the parameters, if any.
        samples: completions per problem in each evaluation of a run, during and after training. The
            last is that of the untrained model too.
    """
    accuracies = untrained[metric].dropna().to_numpy()
    start, final = (float(runs[metric].mean()) for runs in (untrained, pg_runs))
    computed = start + gain_share * (final - start)
    if math.isfinite(computed):
        computed = math.floor(1000 * computed + 0.5) / 1000
    if len(accuracies) == 1:
        (scores,) = untrained[untrained[metric].notna()].scores
        noise = compute_sampling_error(scores)
    else:
        noise = float(accuracies.std(ddof=1)) if len(accuracies) else math.nan
    noises = [noise * math.sqrt(samples[-1] / count) for count in samples]
    chances = (
        curves.compute_chance_to_reach(accuracy, start, noises)
        for accuracy in (computed, computed if reach is None else reach)
    )
    return Target(start, noise, computed, *chances)


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
