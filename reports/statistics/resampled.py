"""Statistics of few runs with bootstrap intervals (Agarwal et al. 2021).

Scores are those of an algorithm's runs, such as the accuracies of 20 seeds. The bootstrap draws
n - 1 of n runs (Rao and Wu 1988), because with n draws the intervals of few runs would be too
narrow.
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
        scores: shape (runs,), at least two runs.
    """
    drawn = scores[_draw_runs(len(scores), seed=0)]
    replicates = stats.trim_mean(drawn, 0.25, axis=1)
    value = stats.trim_mean(scores, 0.25)
    return _percentile_estimate(value, replicates, f"n = {len(scores)} runs")


def probability_of_improvement(ours: np.ndarray, reference: np.ndarray) -> Estimate:
    """Return the probability that a run of ours has a higher score than one of the reference.

    It is Mann and Whitney's U, divided by the number of pairs of runs; ties count one half. If all
    pairs of runs have the same outcome, bootstrap samples do not differ, and the interval is that
    of `clopper_pearson_estimate`.

    Args:
        ours, reference: scores of shape (runs,), at least two runs each; not paired.
    """
    ties = ours[:, None] == reference
    wins = (ours[:, None] > reference) + 0.5 * ties  # (ours, reference)
    sample = f"n = {len(ours)} and {len(reference)} runs"
    if np.ptp(wins) < ROUNDING:
        n = min(len(ours), len(reference))
        return clopper_pearson_estimate(wins.mean(), bounds=(0, 1), n=n, sample=sample)
    our_runs = _draw_runs(len(ours), seed=1)
    reference_runs = _draw_runs(len(reference), seed=2)
    replicates = wins[our_runs[:, :, None], reference_runs[:, None]].mean(axis=(1, 2))
    return _percentile_estimate(wins.mean(), replicates, sample)


def _draw_runs(runs: int, seed: int) -> np.ndarray:
    """Return the runs of each bootstrap sample: shape (REPLICATES, runs - 1)."""
    chance = np.random.default_rng([seed, runs, 1])  # the 1 keeps intervals as recorded
    return chance.integers(runs, size=(REPLICATES, runs - 1))


def _percentile_estimate(value: float, replicates: np.ndarray, sample: str) -> Estimate:
    """Return a value with the percentile interval of its bootstrap samples."""
    low, high = np.quantile(replicates, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return Estimate(float(value), float(low), float(high), sample)
