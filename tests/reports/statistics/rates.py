"""Error rates of the statistics of reports, on simulated runs with known true values.

Each problem has a solve rate. It varies between algorithms, between their runs, and between pairs of
algorithm and problem. A completion is drawn from it for each problem.
"""

from dataclasses import dataclass

import numpy as np

from reports.statistics import crossed, resampled
from reports.statistics.decisions import (
    adjust_by_holm,
    compute_detectable_difference,
    compute_equivalence_p,
)
from reports.statistics.estimates import Estimate

MARGIN, LEVEL = 0.02, 0.05
SEEDS, PROBLEMS = 20, 500  # of the arena
FAMILY = 5  # algorithms compared with the same baseline


@dataclass(frozen=True)
class Rates:
    """Shares of simulated arenas in which a test errs, or detects a true difference."""

    wrong_difference: float  # significant, but there is no difference
    wrong_family: float  # at least one such, after Holm's adjustment over several algorithms
    wrong_equality: float  # equivalence is shown, but the difference is the margin
    difference_seen: float  # the difference of `compute_detectable_difference` is significant, which should be in 80 %


def four_standard_errors(arenas: int, share: float = LEVEL) -> float:
    """Return four standard errors of a share over this number of arenas."""
    return 4 * (share * (1 - share) / arenas) ** 0.5


def simulate_scores(chance: np.random.Generator, sd: float, shifts) -> np.ndarray:
    """Return simulated scores (algorithms, seeds, problems), with an algorithm for each shift.

    Args:
        sd: standard deviation of accuracy between runs, without the sampling of completions.
        shifts: true accuracy of each algorithm, less a common value.
    """
    solve_rates = (
        chance.uniform(0.3, 0.7, PROBLEMS)
        + np.reshape(shifts, (-1, 1, 1))
        + chance.normal(0, sd, (len(shifts), SEEDS, 1))
        + chance.uniform(-0.1, 0.1, (len(shifts), 1, PROBLEMS))
    )
    return (chance.random(solve_rates.shape) < solve_rates).astype(float)


def estimate_differences(chance, sd: float, shifts) -> list[Estimate]:
    """Return each algorithm's estimated difference from a baseline; shifts are the true ones."""
    baseline, *algorithms = simulate_scores(chance, sd, [0, *shifts])
    return [crossed.estimate_mean(algorithm - baseline, (-1, 1)) for algorithm in algorithms]


def simulate_rates(arenas: int, sd: float) -> Rates:
    """Return the rates over this number of simulated arenas, from a fixed seed."""
    chance = np.random.default_rng(0)
    without_difference = [estimate_differences(chance, sd, [0] * FAMILY) for _ in range(arenas)]
    ps = np.array([[estimate.p_at(0) for estimate in family] for family in without_difference])
    detectable_shift = float(
        np.mean([compute_detectable_difference(family[0]) for family in without_difference])
    )
    with_difference = [
        estimate_differences(chance, sd, [MARGIN, detectable_shift]) for _ in range(arenas)
    ]
    return Rates(
        wrong_difference=(ps[:, 0] <= LEVEL).mean(),
        wrong_family=np.mean([(adjust_by_holm(family) <= LEVEL).any() for family in ps]),
        wrong_equality=np.mean(
            [compute_equivalence_p(estimate, MARGIN) <= LEVEL for estimate, _ in with_difference]
        ),
        difference_seen=np.mean([estimate.p_at(0) <= LEVEL for _, estimate in with_difference]),
    )


def simulate_coverage(arenas: int) -> tuple[float, float]:
    """Return how often intervals cover the true interquartile mean and probability of improvement.

    Accuracies of runs are normal; the true values are 0 and 1/2.
    """
    chance, covered = np.random.default_rng(2), []
    for _ in range(arenas):
        ours, reference = chance.normal(0, 0.03, (2, SEEDS))
        mean, better = (
            resampled.interquartile_mean(ours),
            resampled.probability_of_improvement(ours, reference),
        )
        covered.append((mean.covers(0), better.covers(0.5)))
    return tuple(np.mean(covered, axis=0))
