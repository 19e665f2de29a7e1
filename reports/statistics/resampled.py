"""Statistics of few runs with stratified bootstrap intervals (Agarwal et al. 2021), as in rliable.

A score array has a row for each run and a column for each task: the accuracies of 20 seeds on two
benchmarks have shape (20, 2). The bootstrap resamples runs separately for each task. It draws n - 1
of n runs (Rao and Wu 1988), because with n draws the intervals of few runs would be too narrow.
"""

import numpy as np
from scipy import stats

from reports.statistics.estimates import (
    CONFIDENCE_LEVEL,
    ROUNDING,
    Estimate,
    clopper_pearson_estimate,
)

REPLICATES = 4000  # bootstrap samples


def interquartile_mean(scores: np.ndarray) -> Estimate:
    """Return the mean of the middle half of all scores.

    Args:
        scores: shape (runs, tasks), at least two runs.
    """
    drawn = np.take_along_axis(scores[None], _draw_runs(scores.shape, seed=0), axis=1)
    replicates = stats.trim_mean(drawn.reshape(REPLICATES, -1), 0.25, axis=1)
    value = stats.trim_mean(scores, 0.25, axis=None)
    return _percentile_estimate(value, replicates, f"n = {len(scores)} runs per task")


def probability_of_improvement(ours: np.ndarray, reference: np.ndarray) -> Estimate:
    """Return the probability that a run of ours has a higher score than one of the reference.

    It is the mean over tasks of Mann and Whitney's U, divided by the number of pairs of runs; ties
    count one half. If all pairs of runs have the same outcome, bootstrap samples do not differ, and
    the interval is that of `clopper_pearson_estimate`.

    Args:
        ours, reference: scores of shape (runs, tasks), at least two runs each; not paired.
    """
    tasks = ours.shape[1]
    our_scores, reference_scores = ours[:, None], reference[None]
    ties = our_scores == reference_scores
    wins = (our_scores > reference_scores) + 0.5 * ties  # (ours, reference, tasks)
    sample = f"n = {len(ours)} and {len(reference)} runs per task"
    if np.ptp(wins) < ROUNDING:
        n = min(len(ours), len(reference))
        return clopper_pearson_estimate(wins.mean(), bounds=(0, 1), n=n, sample=sample)
    our_runs = _draw_runs(ours.shape, seed=1)
    reference_runs = _draw_runs(reference.shape, seed=2)
    by_task = [
        wins[our_runs[:, :, None, task], reference_runs[:, None, :, task], task].mean(axis=(1, 2))
        for task in range(tasks)
    ]
    return _percentile_estimate(wins.mean(), np.mean(by_task, axis=0), sample)


def _draw_runs(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return the runs of each bootstrap sample, by task: shape (REPLICATES, runs - 1, tasks)."""
    runs, tasks = shape
    return np.random.default_rng([seed, *shape]).integers(runs, size=(REPLICATES, runs - 1, tasks))


def _percentile_estimate(value: float, replicates: np.ndarray, sample: str) -> Estimate:
    """Return a value with the percentile interval of its bootstrap samples."""
    low, high = np.quantile(replicates, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return Estimate(float(value), float(low), float(high), sample)
