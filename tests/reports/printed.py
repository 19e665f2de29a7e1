"""Consistency of the paper's printed figures: they show how these figures were computed.

    python -m tests.reports.printed

1. Each run solves a whole number of problems. The module lists the numbers that have the printed
   mean and standard deviation.
2. Table 4 correlates values of the runs in Table 3. The module computes the range of correlations
   that these runs can have.
3. The savings in the abstract are quotients of runtimes in Table 1.
4. The mean of |log min(w, eta)| is at least the share of clipped weights times log eta.

docs/reproduction-notes.md cites these figures.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from rapid.config.params import load as load_params
from rapid.config.params import read
from reports import paper
from tests.conftest import ROOT

PAPER = load_params(read(ROOT / "params.yaml", ROOT / "experiments/paper.yaml"))
RUNS = paper.load_paper()["runs"]
H = [2, 4, 8, 16]
GRID_POINTS = 9  # values tried for a mean within its rounding interval


def rounding_interval(text: str) -> tuple[float, float]:
    """Return the interval that rounds to a printed figure: 0.06 -> (0.055, 0.065).

    Times are in minutes, shares in percent.
    """
    value, half_digit = (
        paper.parse_number(text),
        0.5 * 10 ** -len(text.rstrip("m%").partition(".")[2]),
    )
    if text.endswith("m"):
        value /= 60
    elif text.endswith("%"):
        value *= 100
    return max(0.0, value - half_digit), value + half_digit


# Accuracy: whole problems
# -----------------------------------------------------------------------------


def find_solved_counts(cell: Sequence[str], problems: int, ddof: int = 1) -> list[tuple[int, ...]]:
    """List the numbers of problems that runs with this mean and deviation can have solved.

    Each tuple has the number of each run, in rising order.

    Args:
        ddof: 1 for the sample's standard deviation, 0 for the population's.
    """
    mean, deviation = map(rounding_interval, cell)
    low = math.floor(mean[0] * problems / 100) - problems // 8
    high = math.ceil(mean[1] * problems / 100) + problems // 8
    solutions = []
    for total in range(
        math.ceil(mean[0] * problems * RUNS / 100 - 1e-9),
        math.floor(mean[1] * problems * RUNS / 100 + 1e-9) + 1,
    ):
        for first in range(max(0, low), high):
            for second in range(first, high):
                third = total - first - second
                if third < second:
                    break
                counts = (first, second, third)
                value = 100 * np.std(counts, ddof=ddof) / problems
                if deviation[0] - 1e-9 <= value <= deviation[1] + 1e-9:
                    solutions.append(counts)
    return solutions


def iterate_accuracies() -> Iterator[tuple[str, str, list[str], int]]:
    """Yield each accuracy of Tables 1 and 3 once, as (row, metric, cell, problems)."""
    document = paper.load_paper()
    for name, sizes in PAPER.benchmarks.items():
        rows = document["main"][name] | {f"rapid-H{h}": document["staleness"][name][h] for h in H}
        for algorithm, cells in rows.items():
            for metric in ("pass@1", "pass@8"):
                if metric in cells:
                    yield f"{name} {algorithm}", metric, cells[metric], sizes.test


def is_share_of_problems(text: str, problems: int) -> bool:
    """Return whether a printed accuracy is a whole number of problems, as of one run."""
    low, high = rounding_interval(text)
    return math.floor(high * problems / 100) >= math.ceil(low * problems / 100)


# Correlations: Table 4 out of Table 3
# -----------------------------------------------------------------


def correlation_range_of_counts(
    benchmark: str, metric: str, x: Sequence[float]
) -> tuple[float, float]:
    """Return the range of the correlation of x with an accuracy, over all possible runs."""
    rows = paper.load_paper()["staleness"][benchmark]
    choices = [find_solved_counts(rows[h][metric], PAPER.benchmarks[benchmark].test) for h in H]
    candidates = [
        np.corrcoef(np.repeat(x, RUNS), np.ravel(runs))[0, 1]
        for runs in itertools.product(*choices)
    ]
    return min(candidates), max(candidates)


def correlation_range_of_moments(
    benchmark: str, metric: str, x: Sequence[float]
) -> tuple[float, float]:
    """Return the range of the correlation of x with a runtime or the staleness.

    All means and deviations that round to the printed ones are possible. For fixed means, larger
    deviations weaken the correlation, so only the ends of their intervals are tried.
    """
    cells = [paper.load_paper()["staleness"][benchmark][h][metric] for h in H]
    axes = [np.linspace(*rounding_interval(mean), GRID_POINTS) for mean, _ in cells]
    means = np.stack(np.meshgrid(*axes), -1).reshape(-1, len(H))  # (GRID_POINTS^4, 4)
    between_squares = RUNS * ((means - means.mean(1, keepdims=True)) ** 2).sum(1)
    centred = np.asarray(x, float) - np.mean(x)
    slope = RUNS * means @ centred
    candidates = []
    for end in (0, 1):
        within_squares = (RUNS - 1) * sum(
            rounding_interval(deviation)[end] ** 2 for _, deviation in cells
        )
        candidates.append(
            slope / np.sqrt(RUNS * (centred**2).sum() * (between_squares + within_squares))
        )
    return float(np.min(candidates)), float(np.max(candidates))


def correlate_means_with_h(benchmark: str, metric: str) -> float:
    """Return the correlation of H with the four printed means."""
    cells = [paper.load_paper()["staleness"][benchmark][h][metric][0] for h in H]
    return float(np.corrcoef(H, [sum(rounding_interval(cell)) / 2 for cell in cells])[0, 1])


def correlation_range(benchmark: str, metric: str, x: Sequence[float]) -> tuple[float, float]:
    """Return the least and the greatest correlation of x with a metric."""
    return (
        correlation_range_of_counts if metric.startswith("pass") else correlation_range_of_moments
    )(benchmark, metric, x)


def iterate_correlations() -> Iterator[tuple[str, str, float]]:
    """Yield each cell of Table 4 as (benchmark, metric, r)."""
    for benchmark in PAPER.benchmarks:
        for metric, text in paper.load_paper()["correlations"][benchmark].items():
            yield benchmark, metric, float(text)


def can_round_to(r: float, ends: tuple[float, float]) -> bool:
    """Return whether a correlation between these ends rounds to r."""
    return ends[0] - 0.0005 <= r <= ends[1] + 0.0005


# Savings, clipping, prompts
# ---------------------------------------------------------------------------


def runtime_saving(benchmark: str, rapid: str, baseline: str) -> float:
    """Return the share of the baseline's runtime that RAPID saves in Table 1."""
    times = (paper.get_main_value(benchmark, name, "runtime") for name in (rapid, baseline))
    return 1 - next(times) / next(times)


def family_runtime_savings() -> dict[str, float]:
    """Return what RAPID saves against the fastest RL baseline of each model in Table 2."""
    savings = {}
    for model, rows in paper.load_paper()["families"].items():
        if model != "table":
            times = {
                name: paper.parse_number(rows[name]["runtime"]) for name in rows if name != "base"
            }
            savings[model] = 1 - times["rapid-H4"] / min(times[name] for name in paper.BASELINES)
    return savings


def max_clipped_share(benchmark: str, h: int) -> float:
    """Return the largest share of clipped weights that the printed staleness allows."""
    high = rounding_interval(paper.load_paper()["staleness"][benchmark][h]["staleness"][0])[1]
    return high / math.log(PAPER.rapid.eta)


def count_unused_prompts(benchmark: str, h: int) -> int:
    """Return how many training prompts of an epoch do not fill an inference batch."""
    sizes = PAPER.benchmarks[benchmark]
    return sizes.train % (h * sizes.n_step // PAPER.training.group_size)


def main() -> None:
    print("Accuracies: problems solved by three runs, by a sample's and a population's deviation")
    for row, metric, cell, problems in iterate_accuracies():
        solutions = [find_solved_counts(cell, problems, ddof)[:2] or "none" for ddof in (1, 0)]
        print(f"  {row:20} {metric} {cell[0]:>5} ± {cell[1]:4}  {solutions[0]}  {solutions[1]}")
    print("Correlations: Table 4; reachable over 12 runs with H; with log2 H; of four means with H")
    for benchmark, metric, r in iterate_correlations():
        ends, log_ends = (correlation_range(benchmark, metric, x) for x in (H, np.log2(H)))
        print(
            f"  {benchmark:9} {metric:9} {r:6.3f}  {ends[0]:6.3f} to {ends[1]:6.3f}"
            f"  {log_ends[0]:6.3f} to {log_ends[1]:6.3f}"
            f"  {correlate_means_with_h(benchmark, metric):6.3f}"
            f"{'' if can_round_to(r, ends) else '  out of reach'}"
        )
    print("Runtime saved, of Table 1")
    for benchmark in PAPER.benchmarks:
        for pair in itertools.product(paper.RAPIDS, paper.BASELINES):
            print(
                f"  {benchmark:9} {' against '.join(pair)} {runtime_saving(benchmark, *pair):.1%}"
            )
    print("Runtime saved, of Table 2, against the fastest RL baseline")
    for model, value in family_runtime_savings().items():
        print(f"  {model:14} {value:.1%}")
    print("The most weights that can be clipped at the printed staleness; unused prompts per epoch")
    for benchmark, h in itertools.product(PAPER.benchmarks, H):
        unused = f"{count_unused_prompts(benchmark, h)} of {PAPER.benchmarks[benchmark].train}"
        print(f"  {benchmark:9} H={h:2} {max_clipped_share(benchmark, h):5.1%}  {unused}")


if __name__ == "__main__":
    main()
