"""Recompute the tables of the trials that choose an arena's learning rates."""

import statistics
from collections import defaultdict
from collections.abc import Iterator

from scipy import stats

from tests.arena_records import Cells, Comparison, label
from tests.recompute_statistics import format_percent


def compare_tuning(
    benchmark: str, printed: Cells, trials: list[dict], highest: bool
) -> Iterator[Comparison]:
    """Yield a comparison for every number in the table of the trials of learning rates.

    Args:
        benchmark: the benchmark of all trials.
        printed: the cells of the table.
        trials: the rows of the file of `reports.tuning`, without those of the untrained model.
        highest: whether the arena's `rate_rule` is "highest", so that ties are marked.
    """
    by_name: dict = defaultdict(lambda: defaultdict(dict))
    for row in trials:
        by_seed = by_name[row["algorithm"]][float(row["learning_rate"])]
        by_seed[row["seed"]] = float(row["accuracy"])
    for name, by_rate in by_name.items():
        rates = sorted(by_rate)
        means = [statistics.fmean(by_rate[rate].values()) for rate in rates]
        scores = means if highest else _average_with_neighbours(means)
        best = scores.index(max(scores))
        for position, (rate, mean) in enumerate(zip(rates, means, strict=True)):
            mark = "*" if position == best else ""
            if highest and not mark and _is_tie(by_rate[rates[best]], by_rate[rate]):
                mark = "~"
            expected = format_percent(mean) + mark
            yield f"tuning {benchmark} {name}", expected, printed.get((label(name), f"{rate:g}"))


def _average_with_neighbours(means: list[float]) -> list[float]:
    sums = [
        (a or 0) + 2 * b + (c or 0)
        for a, b, c in zip([None, *means[:-1]], means, [*means[1:], None], strict=True)
    ]
    weights = [4 - (i == 0) - (i == len(means) - 1) for i in range(len(means))]
    return [total / weight for total, weight in zip(sums, weights, strict=True)]


def _is_tie(best: dict[str, float], other: dict[str, float]) -> bool:
    """Return whether the interval of the mean difference, paired by seed, contains 0.

    One seed gives no interval, and so a tie.
    """
    differences = [best[seed] - other[seed] for seed in best]
    n, mean = len(differences), statistics.fmean(differences)
    if n < 2:
        return True
    half_width = stats.t.isf(0.025, n - 1) * statistics.stdev(differences) / n**0.5
    return abs(mean) <= half_width
