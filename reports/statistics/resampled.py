"""Statistics of few runs as in rliable, with stratified bootstrap intervals (Agarwal et al. 2021).

A score array has a row for each run and a column for each task: the accuracies of 20 seeds on two
benchmarks have shape (20, 2). The bootstrap resamples runs separately for each task, and draws
n - 1 of n runs (Rao and Wu 1988): with n draws the intervals of few runs would be too narrow.
"""

import numpy as np
from scipy import stats

from reports.statistics.estimates import LEVEL, ROUNDING, Estimate, unvaried

REPLICATES = 4000  # bootstrap samples


def interquartile_mean(scores: np.ndarray) -> Estimate:
    """Return the mean of the middle half of all scores: shape (runs, tasks), at least two runs."""
    drawn = np.take_along_axis(scores[None], _draw(scores.shape, 0), axis=1)
    replicates = stats.trim_mean(drawn.reshape(REPLICATES, -1), 0.25, axis=1)
    middle = stats.trim_mean(scores, 0.25, axis=None)
    return _percentiles(middle, replicates, f"n = {len(scores)} runs a task")


def improvement(ours: np.ndarray, reference: np.ndarray) -> Estimate:
    """Return the probability that a run of ours has a higher score than one of the reference.

    It is the mean over tasks of Mann and Whitney's U, divided by the number of pairs of runs; ties
    count one half. If all pairs of runs have the same outcome, a bootstrap shows no noise, and the
    interval is that of `unvaried`.

    Args:
        ours, reference: scores of shape (runs, tasks), at least two runs each; not paired.
    """
    tasks = ours.shape[1]
    first, second = ours[:, None], reference[None]
    wins = (first > second) + 0.5 * (first == second)  # (ours, reference, tasks)
    over = f"n = {len(ours)} and {len(reference)} runs a task"
    if np.ptp(wins) < ROUNDING:
        return unvaried(wins.mean(), (0, 1), min(len(ours), len(reference)), over)
    rows, columns = _draw(ours.shape, 1), _draw(reference.shape, 2)
    by_task = [
        wins[rows[:, :, None, task], columns[:, None, :, task], task].mean(axis=(1, 2))
        for task in range(tasks)
    ]
    return _percentiles(wins.mean(), np.mean(by_task, axis=0), over)


def _draw(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return the runs of each bootstrap sample, by task: shape (REPLICATES, runs - 1, tasks).

    Args:
        shape: (runs, tasks).
        seed: seed of the random numbers; two arrays with different seeds are drawn independently.
    """
    runs, tasks = shape
    return np.random.default_rng([seed, *shape]).integers(runs, size=(REPLICATES, runs - 1, tasks))


def _percentiles(value: float, replicates: np.ndarray, over: str) -> Estimate:
    """Return a value with the percentile interval of its bootstrap samples."""
    low, high = np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(value), float(low), float(high), over)
