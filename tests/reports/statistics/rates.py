"""How often the statistics of reports err, on simulated runs whose truth is known.

    python -m tests.reports.statistics.rates

Each problem has a solve rate. It differs by algorithm, by seed, and by both together with the
problem. Completions are drawn by it.
"""

from dataclasses import dataclass

import numpy as np

from reports.statistics import crossed, resampled
from reports.statistics.decisions import detectable, equivalence, holm
from reports.statistics.estimates import Estimate

MARGIN, LEVEL = 0.02, 0.05
# Seeds, problems, completions a problem: of the arena, and of the default tables.
ARENA, TABLE = (20, 500, 1), (3, 40, 8)
FAMILY = 5  # algorithms beside the same baseline


@dataclass(frozen=True)
class Rates:
    """Shares of simulated arenas."""

    wrong_difference: float  # a difference is seen where there is none
    wrong_family: float  # one is seen among several algorithms where there are none, by Holm
    wrong_equality: float  # the margin itself is taken for less
    difference_seen: float  # a difference that `detectable` says to be seen in 80 %


def noise(arenas: int, share: float = LEVEL) -> float:
    """Return four standard errors of a share of so many arenas."""
    return 4 * (share * (1 - share) / arenas) ** 0.5


def scores(
    chance: np.random.Generator, size: tuple[int, int, int], sd: float, shifts
) -> np.ndarray:
    """Return scores of an algorithm for each shift of its accuracy: (algorithms, seeds, problems).

    Args:
        sd: standard deviation of a run's accuracy beside the drawing of completions.
    """
    seeds, problems, samples = size
    solved = (
        chance.uniform(0.3, 0.7, problems)
        + np.reshape(shifts, (-1, 1, 1))
        + chance.normal(0, sd, (len(shifts), seeds, 1))
        + chance.uniform(-0.1, 0.1, (len(shifts), 1, problems))
    )
    return np.mean([chance.random(solved.shape) < solved for _ in range(samples)], axis=0)


def differences(chance, size, sd: float, shifts) -> list[Estimate]:
    """Return each algorithm's difference from a baseline, the truths of which are the shifts."""
    baseline, *others = scores(chance, size, sd, [0, *shifts])
    return [crossed.estimate(other - baseline, (-1, 1)) for other in others]


def rates(arenas: int, sd: float = 0.03, size: tuple[int, int, int] = ARENA) -> Rates:
    """Return the rates of so many simulated arenas, the same each time."""
    chance = np.random.default_rng(0)
    same = [differences(chance, size, sd, [0] * FAMILY) for _ in range(arenas)]
    ps = np.array([[one.p_at(0) for one in family] for family in same])
    least = float(np.mean([detectable(family[0]) for family in same]))
    other = [differences(chance, size, sd, [MARGIN, least]) for _ in range(arenas)]
    return Rates(
        wrong_difference=(ps[:, 0] <= LEVEL).mean(),
        wrong_family=np.mean([(holm(family) <= LEVEL).any() for family in ps]),
        wrong_equality=np.mean([equivalence(one, MARGIN) <= LEVEL for one, _ in other]),
        difference_seen=np.mean([one.p_at(0) <= LEVEL for _, one in other]),
    )


def bootstrap(matrix: np.ndarray, chance: np.random.Generator) -> tuple[float, float]:
    """Return the 95 % interval of a bootstrap of seeds and problems (Owen 2007), n - 1 of n."""
    weights = [
        chance.multinomial(n - 1, np.full(n, 1 / n), size=1000) / (n - 1) for n in matrix.shape
    ]
    drawn = ((weights[0] @ matrix) * weights[1]).sum(axis=1)
    return tuple(np.quantile(drawn, [0.025, 0.975]))


def misses(arenas: int, sd: float, size: tuple[int, int, int]) -> tuple[float, float]:
    """Return how often 0 is outside the interval where it is the truth: of t, and of a bootstrap."""
    chance, found = np.random.default_rng(1), []
    for _ in range(arenas):
        baseline, other = scores(chance, size, sd, [0, 0])
        low, high = bootstrap(other - baseline, chance)
        estimate = crossed.estimate(other - baseline, (-1, 1))
        found.append((not estimate.covers(0), not low <= 0 <= high))
    return tuple(np.mean(found, axis=0))


def coverage(arenas: int, tasks: int, runs: int = 20) -> tuple[float, float]:
    """Return how often an interquartile mean and a probability of improvement are covered.

    Accuracies of runs are normal: the truths are 0 and 1/2.
    """
    chance, found = np.random.default_rng(2), []
    for _ in range(arenas):
        ours, theirs = chance.normal(0, 0.03, (2, runs, tasks))
        middle, better = resampled.interquartile_mean(ours), resampled.improvement(ours, theirs)
        found.append((middle.covers(0), better.covers(0.5)))
    return tuple(np.mean(found, axis=0))


def main() -> None:
    print("20 seeds, 500 problems: 1000 arenas, by the standard deviation between seeds")
    for sd in (0.0, 0.01, 0.03, 0.06):
        shown = ", ".join(f"{name} {value:.3f}" for name, value in vars(rates(1000, sd)).items())
        print(f"  {sd:.2f}: {shown}")
    print("95 % intervals of a true difference of 0 that miss it: Student's t, bootstrap")
    for size in (TABLE, ARENA):
        for sd in (0.0, 0.03, 0.1):
            print(f"  {size}, {sd:.2f}: " + ", ".join(f"{v:.3f}" for v in misses(1000, sd, size)))
    print("Intervals that hold the truth: interquartile mean, probability of improvement")
    for tasks in (1, 2):
        print(f"  {tasks} tasks: " + ", ".join(f"{v:.3f}" for v in coverage(300, tasks)))


if __name__ == "__main__":
    main()
