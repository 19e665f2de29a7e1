"""Error rates of the statistics of reports, on simulated runs with known true values.

    python -m tests.reports.statistics.rates

Each problem has a solve rate. It varies between algorithms, between their runs, and between pairs of
algorithm and problem. Completions are drawn from it.
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
# Seeds, problems and completions per problem: of the arena, and of the default tables.
ARENA, TABLE = (20, 500, 1), (3, 40, 8)
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


def simulate_scores(
    chance: np.random.Generator, size: tuple[int, int, int], sd: float, shifts
) -> np.ndarray:
    """Return simulated scores (algorithms, seeds, problems), with an algorithm for each shift.

    Args:
        sd: standard deviation of accuracy between runs, without the sampling of completions.
        shifts: true accuracy of each algorithm, less a common value.
    """
    seeds, problems, samples = size
    solved = (
        chance.uniform(0.3, 0.7, problems)
        + np.reshape(shifts, (-1, 1, 1))
        + chance.normal(0, sd, (len(shifts), seeds, 1))
        + chance.uniform(-0.1, 0.1, (len(shifts), 1, problems))
    )
    return np.mean([chance.random(solved.shape) < solved for _ in range(samples)], axis=0)


def estimate_differences(chance, size, sd: float, shifts) -> list[Estimate]:
    """Return each algorithm's estimated difference from a baseline; shifts are the true ones."""
    baseline, *algorithms = simulate_scores(chance, size, sd, [0, *shifts])
    return [crossed.estimate_mean(algorithm - baseline, (-1, 1)) for algorithm in algorithms]


def simulate_rates(arenas: int, sd: float = 0.03, size: tuple[int, int, int] = ARENA) -> Rates:
    """Return the rates over this number of simulated arenas, from a fixed seed."""
    chance = np.random.default_rng(0)
    without_difference = [
        estimate_differences(chance, size, sd, [0] * FAMILY) for _ in range(arenas)
    ]
    ps = np.array([[estimate.p_at(0) for estimate in family] for family in without_difference])
    detectable_shift = float(
        np.mean([compute_detectable_difference(family[0]) for family in without_difference])
    )
    with_difference = [
        estimate_differences(chance, size, sd, [MARGIN, detectable_shift]) for _ in range(arenas)
    ]
    return Rates(
        wrong_difference=(ps[:, 0] <= LEVEL).mean(),
        wrong_family=np.mean([(adjust_by_holm(family) <= LEVEL).any() for family in ps]),
        wrong_equality=np.mean(
            [compute_equivalence_p(estimate, MARGIN) <= LEVEL for estimate, _ in with_difference]
        ),
        difference_seen=np.mean([estimate.p_at(0) <= LEVEL for _, estimate in with_difference]),
    )


def bootstrap_interval(matrix: np.ndarray, chance: np.random.Generator) -> tuple[float, float]:
    """Return a bootstrap's 95 % interval; it draws n - 1 of n seeds and problems (Owen 2007)."""
    weights = [
        chance.multinomial(n - 1, np.full(n, 1 / n), size=1000) / (n - 1) for n in matrix.shape
    ]
    means = ((weights[0] @ matrix) * weights[1]).sum(axis=1)
    return tuple(np.quantile(means, [0.025, 0.975]))


def simulate_miss_rates(arenas: int, sd: float, size: tuple[int, int, int]) -> tuple[float, float]:
    """Return how often intervals miss a true difference of 0: Student's t, and the bootstrap."""
    chance, missed = np.random.default_rng(1), []
    for _ in range(arenas):
        baseline, algorithm = simulate_scores(chance, size, sd, [0, 0])
        low, high = bootstrap_interval(algorithm - baseline, chance)
        estimate = crossed.estimate_mean(algorithm - baseline, (-1, 1))
        missed.append((not estimate.covers(0), not low <= 0 <= high))
    return tuple(np.mean(missed, axis=0))


def simulate_coverage(arenas: int, runs: int = 20) -> tuple[float, float]:
    """Return how often intervals cover the true interquartile mean and probability of improvement.

    Accuracies of runs are normal; the true values are 0 and 1/2.
    """
    chance, covered = np.random.default_rng(2), []
    for _ in range(arenas):
        ours, reference = chance.normal(0, 0.03, (2, runs))
        mean, better = (
            resampled.interquartile_mean(ours),
            resampled.probability_of_improvement(ours, reference),
        )
        covered.append((mean.covers(0), better.covers(0.5)))
    return tuple(np.mean(covered, axis=0))


def main() -> None:
    print("20 seeds, 500 problems: 1000 arenas, by the standard deviation between seeds")
    for sd in (0.0, 0.01, 0.03, 0.06):
        rates = vars(simulate_rates(1000, sd))
        print(f"  {sd:.2f}: " + ", ".join(f"{name} {rate:.3f}" for name, rate in rates.items()))
    print("95 % intervals of a true difference of 0 that miss it: Student's t, bootstrap")
    for size in (TABLE, ARENA):
        for sd in (0.0, 0.03, 0.1):
            miss_rates = simulate_miss_rates(1000, sd, size)
            print(f"  {size}, {sd:.2f}: " + ", ".join(f"{rate:.3f}" for rate in miss_rates))
    print("Intervals that cover the true value: interquartile mean, probability of improvement")
    print("  " + ", ".join(f"{share:.3f}" for share in simulate_coverage(300)))


if __name__ == "__main__":
    main()
