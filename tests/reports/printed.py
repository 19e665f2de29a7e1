"""The paper's printed figures held against each other: what they say of how they were made.

    python -m tests.reports.printed

1. A run solves whole numbers of problems: which of them have the printed mean and deviation?
2. Table 4 is made of the runs of Table 3: which correlations can those runs have?
3. The savings in the abstract are quotients of runtimes in Table 1.
4. An average of |log min(w, eta)| is at least the share of clipped weights times log eta.

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
RUNS = paper.load()["runs"]
H = [2, 4, 8, 16]
GRID = 9  # values tried of a mean between the ends of its rounding


def rounding(text: str) -> tuple[float, float]:
    """The numbers that are printed so: 0.06 -> (0.055, 0.065); times in minutes, shares in percent."""
    value, half = paper.number(text), 0.5 * 10 ** -len(text.rstrip("m%").partition(".")[2])
    if text.endswith("m"):
        value /= 60
    elif text.endswith("%"):
        value *= 100
    return max(0.0, value - half), value + half


# Accuracy: whole problems
# -----------------------------------------------------------------------------


def counts(cell: Sequence[str], problems: int, ddof: int = 1) -> list[tuple[int, ...]]:
    """Problems solved by each run, so that mean and deviation are printed so; runs in rising order.

    Args:
        ddof: 1 is the sample's deviation, 0 the population's.
    """
    mean, deviation = map(rounding, cell)
    low = math.floor(mean[0] * problems / 100) - problems // 8
    high = math.ceil(mean[1] * problems / 100) + problems // 8
    solutions = []
    for total in range(
        math.ceil(mean[0] * problems * RUNS / 100 - 1e-9),
        math.floor(mean[1] * problems * RUNS / 100 + 1e-9) + 1,
    ):
        for a in range(max(0, low), high):
            for b in range(a, high):
                c = total - a - b
                if c < b:
                    break
                value = 100 * np.std([a, b, c], ddof=ddof) / problems
                if deviation[0] - 1e-9 <= value <= deviation[1] + 1e-9:
                    solutions.append((a, b, c))
    return solutions


def accuracies() -> Iterator[tuple[str, str, list[str], int]]:
    """Every accuracy of Tables 1 and 3: (where, metric, cell, problems), none twice."""
    document = paper.load()
    for name, sizes in PAPER.benchmarks.items():
        rows = document["main"][name] | {f"rapid-H{h}": document["staleness"][name][h] for h in H}
        for row, cells in rows.items():
            for metric in ("pass@1", "pass@8"):
                if metric in cells:
                    yield f"{name} {row}", metric, cells[metric], sizes.test


def in_one_run(text: str, problems: int) -> bool:
    """Whether one run that answers each problem once can be printed so."""
    low, high = rounding(text)
    return math.floor(high * problems / 100) >= math.ceil(low * problems / 100)


# Correlations: Table 4 out of Table 3
# -----------------------------------------------------------------


def of_counts(benchmark: str, metric: str, x: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest correlation of x with an accuracy, over the runs it may be made of."""
    rows = paper.load()["staleness"][benchmark]
    choices = [counts(rows[h][metric], PAPER.benchmarks[benchmark].test) for h in H]
    candidates = [
        np.corrcoef(np.repeat(x, RUNS), np.ravel(runs))[0, 1]
        for runs in itertools.product(*choices)
    ]
    return min(candidates), max(candidates)


def of_moments(benchmark: str, metric: str, x: Sequence[float]) -> tuple[float, float]:
    """The same with a runtime or the staleness, over means and deviations that are printed so.

    With the means given a correlation is the weaker the larger the deviations: their ends are
    tried.
    """
    cells = [paper.load()["staleness"][benchmark][h][metric] for h in H]
    axes = [np.linspace(*rounding(mean), GRID) for mean, _ in cells]
    means = np.stack(np.meshgrid(*axes), -1).reshape(-1, len(H))  # (GRID^4, 4)
    between = RUNS * ((means - means.mean(1, keepdims=True)) ** 2).sum(1)
    centred = np.asarray(x, float) - np.mean(x)
    slope = RUNS * means @ centred
    candidates = []
    for end in (0, 1):
        within = (RUNS - 1) * sum(rounding(deviation)[end] ** 2 for _, deviation in cells)
        candidates.append(slope / np.sqrt(RUNS * (centred**2).sum() * (between + within)))
    return float(np.min(candidates)), float(np.max(candidates))


def of_means(benchmark: str, metric: str) -> float:
    """The correlation of H with the four printed means."""
    cells = [paper.load()["staleness"][benchmark][h][metric][0] for h in H]
    return float(np.corrcoef(H, [sum(rounding(cell)) / 2 for cell in cells])[0, 1])


def reachable(benchmark: str, metric: str, x: Sequence[float]) -> tuple[float, float]:
    return (of_counts if metric.startswith("pass") else of_moments)(benchmark, metric, x)


def correlations() -> Iterator[tuple[str, str, float]]:
    """Every cell of Table 4: benchmark, metric, r."""
    for benchmark in PAPER.benchmarks:
        for metric, text in paper.load()["correlations"][benchmark].items():
            yield benchmark, metric, float(text)


def agrees(r: float, ends: tuple[float, float]) -> bool:
    """Whether a correlation between these ends is printed so."""
    return ends[0] - 0.0005 <= r <= ends[1] + 0.0005


# Savings, clipping, prompts
# ---------------------------------------------------------------------------


def saving(benchmark: str, rapid: str, baseline: str) -> float:
    times = (paper.main(benchmark, name, "runtime") for name in (rapid, baseline))
    return 1 - next(times) / next(times)


def family_savings() -> dict[str, float]:
    """Of Table 2: RAPID against the fastest RL baseline."""
    savings = {}
    for model, rows in paper.load()["families"].items():
        if model != "table":
            times = {name: paper.number(rows[name]["runtime"]) for name in rows if name != "base"}
            savings[model] = 1 - times["rapid-H4"] / min(times[name] for name in paper.BASELINES)
    return savings


def most_clipped(benchmark: str, h: int) -> float:
    """The largest share of clipped weights that the printed staleness allows, as |log min(w, eta)|."""
    high = rounding(paper.load()["staleness"][benchmark][h]["staleness"][0])[1]
    return high / math.log(PAPER.rapid.eta)


def unused_prompts(benchmark: str, h: int) -> int:
    """Training prompts of an epoch that fill no whole inference batch."""
    sizes = PAPER.benchmarks[benchmark]
    return sizes.train % (h * sizes.n_step // PAPER.training.group_size)


def main() -> None:
    print("Accuracies: problems solved by three runs, by a sample's and a population's deviation")
    for where, metric, cell, problems in accuracies():
        shown = [counts(cell, problems, ddof)[:2] or "none" for ddof in (1, 0)]
        print(f"  {where:20} {metric} {cell[0]:>5} ± {cell[1]:4}  {shown[0]}  {shown[1]}")
    print("Correlations: Table 4; reachable over 12 runs with H; with log2 H; of four means with H")
    for benchmark, metric, r in correlations():
        ends, logs = (reachable(benchmark, metric, x) for x in (H, np.log2(H)))
        print(
            f"  {benchmark:9} {metric:9} {r:6.3f}  {ends[0]:6.3f} to {ends[1]:6.3f}"
            f"  {logs[0]:6.3f} to {logs[1]:6.3f}  {of_means(benchmark, metric):6.3f}"
            f"{'' if agrees(r, ends) else '  out of reach'}"
        )
    print("Runtime saved, of Table 1")
    for benchmark in PAPER.benchmarks:
        for pair in itertools.product(paper.RAPIDS, paper.BASELINES):
            print(f"  {benchmark:9} {' against '.join(pair)} {saving(benchmark, *pair):.1%}")
    print("Runtime saved, of Table 2, against the fastest RL baseline")
    for model, value in family_savings().items():
        print(f"  {model:14} {value:.1%}")
    print("The most weights that can be clipped at the printed staleness; unused prompts an epoch")
    for benchmark, h in itertools.product(PAPER.benchmarks, H):
        unused = f"{unused_prompts(benchmark, h)} of {PAPER.benchmarks[benchmark].train}"
        print(f"  {benchmark:9} H={h:2} {most_clipped(benchmark, h):5.1%}  {unused}")


if __name__ == "__main__":
    main()
