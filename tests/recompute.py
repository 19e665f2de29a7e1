"""Recompute the tables of results from the raw files, without the code of the reports.

    python -m tests.recompute --root . --params params.yaml --reports reports

It reads evaluation.json and summary.json of the runs, and the paper's values in reports/paper.yaml.
It compares every number and mark of Tables 1 to 4 and 8 to 11 with tables.txt, appendix.txt,
tables.tex, appendix.tex and report.html. Tables 5 to 7 have parameters and versions, no results.
Every run must exist. Shares of completions are computed as exact fractions; a share halfway between
two printed values is rounded up.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import yaml

from rapid.benchmarks import BENCHMARKS
from tests import recompute_claims
from tests.recompute_statistics import (
    DASH,
    Result,
    adjust_minus,
    compare_accuracy,
    compare_durations,
    correlate,
    estimate_accuracy,
    format_duration,
    format_p,
    format_percent,
    format_points,
    format_ratio,
    format_result,
    pass_at_k,
)
from tests.reports import reading

MIN_RUNS_FOR_TIE = 5  # an algorithm with fewer runs is not marked as tied with the best
NOT_RANKED = ("base", "sft")  # algorithms that are not ranked by runtime
# Source of problems in params.yaml -> kind of problems in labels.
KINDS = {"embedded": "made", "hub": "hub"}
MEASURES = ("staleness", "clip_fraction", "peak_memory_mb", "completion_length")


class VisibleCell(NamedTuple):
    """The content of a table's cell as a reader sees it, apart from footnotes."""

    text: str
    mark: str = ""
    tied: bool = False


# The keys are (number of a table, row, title of a column).
VisibleCells = dict[tuple[int, int, str], VisibleCell]


class Run:
    """The values in the raw files of one run, by metric."""

    def __init__(self, root: Path, benchmark: str, model: str, algorithm: str, seed: int):
        path, self.algorithm, self.seed = (
            f"{benchmark}/{model}/{algorithm}/seed{seed}",
            algorithm,
            seed,
        )
        document = json.loads((root / "evaluations" / path / "evaluation.json").read_text())
        self.scores = {s["id"]: (s["samples"], s["correct"]) for s in document["scores"]}
        self.values: dict = {
            f"pass@{k}": statistics.mean(pass_at_k(n, c, int(k)) for n, c in self.scores.values())
            for k in document["pass_at"]
        }
        self.disturbed, self.hardware = False, None
        if algorithm != "base":
            summary = json.loads((root / "runs" / path / "summary.json").read_text())
            self.values |= {name: summary.get(name) for name in MEASURES}
            self.values["runtime"] = summary["runtime"]["total"]
            self.disturbed, self.hardware = summary.get("disturbed"), summary["hardware"]


class Results:
    """All runs of an experiment, and the cells of its tables.

    Args:
        root: the folder that contains runs/ and evaluations/.
        params: the contents of params.yaml.
    """

    def __init__(self, root: Path, params: dict):
        self.root, self.params = root, params
        self.tables, self.benchmarks = params["tables"], params["benchmarks"]
        self.paper = yaml.safe_load(
            Path(__file__).parents[1].joinpath("reports/paper.yaml").read_text()
        )
        self.runs: dict[tuple, list[Run]] = {}

    @cached_property
    def algorithms(self) -> list[str]:
        """The model before training, the baselines of Table 1, then RAPID at every H."""
        listed = self.tables["main"]["algorithms"]
        rapid = {name for name in listed if name.startswith("rapid-H")} | set(self.sweep)
        others = [name for name in listed if name not in rapid]
        return ["base", *others, *sorted(rapid, key=lambda name: int(name[7:]))]

    @property
    def sweep(self) -> list[str]:
        """RAPID at the H of Table 3."""
        return [f"rapid-H{h}" for h in self.tables["staleness"]["H"]]

    def label(self, benchmark: str) -> str:
        source = self.benchmarks[benchmark]["source"]
        kind = KINDS.get(source, "folder" if Path(source).is_dir() else "file")
        return f"{BENCHMARKS[benchmark].label} ({kind})"

    def read(self, benchmark: str, algorithm: str, model: str = "") -> list[Run]:
        """Return the runs of an algorithm by seed, with the main model or one of Table 2."""
        key, spec = (benchmark, algorithm, model), self.tables["families" if model else "main"]
        if key not in self.runs:
            place = benchmark, model or spec["model"], algorithm
            self.runs[key] = [Run(self.root, *place, seed) for seed in spec["seeds"]]
        return self.runs[key]

    # Tables 1 to 4 and 10: means and marks ------------------------------------------------------

    def compute_cells(self) -> VisibleCells:
        """Return the cells of all tables that have results."""
        main, families = self.tables["main"], self.tables["families"]
        cells: VisibleCells = {}
        for benchmark, section in self.benchmarks.items():
            metrics = {f"Pass@{k}": f"pass@{k}" for k in section["pass_at"]}
            group = f"{self.label(benchmark)}: "
            for number, names, columns in (
                (1, ["base", *main["algorithms"]], metrics | {"Runtime": "runtime"}),
                (3, self.sweep, metrics | {"Time": "runtime", "Stale": "staleness"}),
            ):
                runs = {name: self.read(benchmark, name) for name in names}
                cells |= _add_table(number, _mean_columns(runs, columns), group)
            runs = {name: self.read(benchmark, name) for name in self.algorithms[1:]}
            memory = _mean_columns(runs, {"": "peak_memory_mb"})
            cells |= {(10, row, self.label(benchmark)): cell for (row, _), cell in memory.items()}
        benchmark = families["benchmark"]
        metrics = {f"Pass@{k}": f"pass@{k}" for k in self.benchmarks[benchmark]["pass_at"]}
        for model in families["models"]:
            names = ["base", *families["algorithms"]]
            runs = {name: self.read(benchmark, name, model) for name in names}
            columns = _mean_columns(runs, metrics | {"Time": "runtime"})
            cells |= _add_table(2, columns, f"{model}: ")
        return cells | dict(self._correlations()) | dict(self._intervals()) | dict(self._claims())

    def _correlations(self) -> Iterator[tuple[tuple, VisibleCell]]:
        row = 0
        for benchmark, section in self.benchmarks.items():
            for k in section["pass_at"]:
                yield (4, row, "Metric"), VisibleCell(f"Pass@{k}")
                titles = {"Acc": f"pass@{k}", "Time": "runtime", "Stale": "staleness"}
                for title, metric in titles.items():
                    r = self.correlate(benchmark, metric).value
                    text = DASH if r is None else format_correlation(r)
                    yield (4, row, f"r(H, {title})"), VisibleCell(text)
                row += 1

    def read_sweep(self, benchmark: str, metric: str) -> list[tuple[int, Run]]:
        """Return H and the run, for each run of Table 3 that has the metric.

        A run in which no group had a gradient has neither staleness nor a share of clipped weights.
        """
        return [
            (int(name[7:]), run)
            for name in self.sweep
            for run in self.read(benchmark, name)
            if run.values[metric] is not None
        ]

    def correlate(self, benchmark: str, metric: str) -> Result:
        """Return the correlation of H with a metric; no value for runtimes on several machines."""
        points = self.read_sweep(benchmark, metric)
        if metric == "runtime" and len({run.hardware for _, run in points}) > 1:
            return Result(None)
        return correlate([(h, run.values[metric]) for h, run in points])

    # Tables 8, 9 and 11: estimates ----------------------------------------------------------------

    def compare(
        self, benchmark: str, metric: str, ours: str, theirs: str, model: str = ""
    ) -> Result:
        """Return the paired ratio of durations or lengths, or the difference of accuracies.

        The result has no estimate if one of the algorithms has no runs.
        """
        if not {ours, theirs} <= {
            *(self.tables["families"]["algorithms"] if model else self.algorithms)
        }:
            return Result(None)
        pair = self.read(benchmark, ours, model), self.read(benchmark, theirs, model)
        return _compare(*pair, metric)

    def _intervals(self) -> Iterator[tuple[tuple, VisibleCell]]:
        for benchmark, section in self.benchmarks.items():
            group = f"{self.label(benchmark)}: "
            rapid = [name for name in self.algorithms if name.startswith("rapid-H")]
            for k in section["pass_at"]:
                for row, name in enumerate(self.algorithms):
                    runs = self.read(benchmark, name)
                    result = estimate_accuracy([run.scores for run in runs], k)
                    text = format_result(format_percent, result)
                    yield (9, row, f"{group}Pass@{k}"), VisibleCell(text)
            metrics = {f"Pass@{k}": f"pass@{k}" for k in section["pass_at"]}
            for title, metric in (metrics | {"Runtime": "runtime"}).items():
                show = format_ratio if metric == "runtime" else format_points
                for row, name in enumerate(rapid):
                    result = self.compare(benchmark, metric, name, "pg")
                    text = format_result(show, result)
                    if result.p:
                        p = format_p(result.p(1.0 if metric == "runtime" else 0.0))
                        text += f" p {p if p[0] == '<' else f'= {p}'}"
                    paper = recompute_claims.compare_paper(
                        self.paper, benchmark, metric, name, "pg"
                    )
                    if paper is not None and result.value is not None:
                        text += f" paper: {show(paper)}"
                    yield (8, row, f"{group}{title}"), VisibleCell(text)

    def _claims(self) -> Iterator[tuple[tuple, VisibleCell]]:
        for row, cells in enumerate(recompute_claims.judge(self)):
            for title, text in cells.items():
                yield (11, row, title), VisibleCell(text)


def _add_table(number: int, cells: dict, group: str) -> VisibleCells:
    """Return cells whose keys also have the table's number and the title of the group of columns."""
    return {(number, row, f"{group}{title}"): cell for (row, title), cell in cells.items()}


def _compare(ours: list[Run], theirs: list[Run], metric: str) -> Result:
    if metric.startswith("pass@"):
        k = int(metric.removeprefix("pass@"))
        return compare_accuracy([run.scores for run in ours], [run.scores for run in theirs], k)
    pairs = [
        (our_run.values[metric], their_run.values[metric])
        for our_run, their_run in zip(ours, theirs, strict=True)
        if metric != "runtime" or our_run.hardware == their_run.hardware
    ]
    return compare_durations(pairs)


def _mean_columns(runs: dict[str, list[Run]], columns: dict[str, str]) -> dict:
    """Return the cells of a group of columns: (row, title) -> mean, deviation and mark.

    Args:
        columns: title -> metric.
    """
    cells = {}
    for title, metric in columns.items():
        values = {
            name: [run.values.get(metric) for run in runs_of_name]
            for name, runs_of_name in runs.items()
        }
        means = {n: statistics.mean(v) for n, v in values.items() if None not in v}
        show = choose_format(metric, [*means.values()])
        is_ranked = metric.startswith(("pass@", "runtime"))
        marks = _compute_marks(runs, means, metric) if is_ranked else {}
        for row, (name, numbers) in enumerate(values.items()):
            if name not in means:
                # A trained run in which no group had a gradient has no staleness.
                cells[row, title] = VisibleCell("N/A" if name == "base" else DASH)
                continue
            text = show(means[name], means[name])
            if len(numbers) > 1:
                text += f" ± {show(statistics.stdev(numbers), means[name])}"
            cells[row, title] = VisibleCell(text, *marks.get(name, ()))
    return cells


def _compute_marks(
    runs: dict[str, list[Run]], means: dict, metric: str
) -> dict[str, tuple[str, bool]]:
    """Return the mark of each ranked algorithm, and whether it is tied with the best."""
    ranked = dict(means)
    if metric == "runtime":
        all_runs = [run for runs_of_name in runs.values() for run in runs_of_name]
        machines = {run.hardware for run in all_runs if run.hardware is not None}
        for name in means:
            if name in NOT_RANKED or any(run.disturbed for run in runs[name]) or len(machines) > 1:
                del ranked[name]
    rounded = {name: float(f"{float(mean):.9g}") for name, mean in ranked.items()}
    order = sorted(set(rounded.values()), reverse=metric != "runtime")
    if len(order) < 2:
        return {}
    best = [name for name in runs if rounded.get(name) == order[0]]
    marks = {}
    for name, mean in rounded.items():
        mark = "best" if name in best else ""
        if len(best) == 1 and mean == order[1]:
            mark = "runner-up"
        tied = False
        if mark != "best" and min(len(runs[name]), len(runs[best[0]])) >= MIN_RUNS_FOR_TIE:
            result = _compare(runs[name], runs[best[0]], metric)
            tied = result.low <= (1.0 if metric == "runtime" else 0.0) <= result.high
        marks[name] = mark, tied
    return marks


def choose_format(metric: str, means: list) -> Callable:
    if metric == "runtime":
        return format_duration(means)
    if metric == "staleness":
        return _format_two_digits
    if metric == "peak_memory_mb":
        return lambda value, mean: f"{value:,.0f}"
    return lambda value, mean: format_percent(value)


def _format_two_digits(value: float, mean: float) -> str:
    decimals = 1 - math.floor(math.log10(mean)) if 1e-6 <= mean < 0.005 else 2
    return f"{value:.{decimals}f}"


def format_correlation(r: float) -> str:
    return adjust_minus(f"{r:.3f}") if float(f"{r:.3f}") else "0.000"


# Printed tables -----------------------------------------------------------------------------------


def read_printed(folder: Path) -> dict[str, VisibleCells]:
    """Return the printed cells of each format, by the format's name."""

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    results = reading.read_latex(text("tables.tex"), 1)
    formats = {
        "text": reading.read_text(text("tables.txt")) | reading.read_text(text("appendix.txt")),
        "TeX": results | reading.read_latex(text("appendix.tex"), len(results) + 1),
        "HTML": reading.Page(text("report.html")).tables,
    }
    return {
        name: {
            (number, row, title): VisibleCell(cell.text, cell.mark, cell.tied)
            for number, table in tables.items()
            if number not in (5, 6, 7)
            for row, cells in enumerate(table.rows)
            for title, cell in zip(table.columns, cells, strict=True)
        }
        for name, tables in formats.items()
    }


def compare_all(root: Path, params: dict, folder: Path) -> tuple[list[str], int]:
    """Return a line for each cell that differs, and the number of recomputed cells."""
    expected, differing = Results(root, params).compute_cells(), []
    for form, printed in read_printed(folder).items():
        for key in expected | printed:
            if expected.get(key) != printed.get(key):
                number, row, title = key
                differing.append(
                    f"{form}, Table {number}, row {row + 1}, {title}: "
                    f"recomputed {expected.get(key)}, printed {printed.get(key)}"
                )
    return differing, len(expected)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path("."))
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--reports", type=Path, default=Path("reports"))
    options = parser.parse_args()
    params = yaml.safe_load(options.params.read_text(encoding="utf-8"))
    differing, count = compare_all(options.root, params, options.reports)
    print(*differing, f"{count} cells recomputed, {len(differing)} differ", sep="\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
