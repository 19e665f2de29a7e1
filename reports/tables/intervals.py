"""Table 9, accuracies with confidence intervals, and Table 8, RAPID compared with the baseline.

RAPID has a row for each H, the number of optimizer steps per inference batch.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from reports import formats, labels, paper
from reports.measured import BASELINE, Contest, Measured
from reports.statistics import pairs
from reports.statistics.decisions import detectable, holm
from reports.statistics.estimates import LEVEL, Estimate
from reports.tables.columns import RUNTIME, Column, accuracy, algorithm_table, by_benchmark
from reports.tables.layout import Cells, build_table, by_row
from reports.tables.table import MISSING, Cell, Source, Table, estimate_cell

NO_SCORES = "no run has scores by problem"
UNPAIRED = "no seed has runs of both"


# Intervals ----------------------------------------------------------------------------------------


class Interval(Column):
    """A column of accuracy that shows the interval in place of the standard deviation."""

    def cell(self, runs: pd.DataFrame) -> Cell:
        cell, mean = super().cell(runs), pairs.accuracy(runs, self.metric)
        if mean is None:
            return cell if cell.text == MISSING else replace(cell, deviation="", reason=NO_SCORES)
        return replace(cell, deviation="", under=(cell.interval,), detail=f"{mean.over}.")


@dataclass(frozen=True)
class SoundInterval(Interval):
    """The accuracy over the test problems whose statement has no known flaw."""

    def cells(self, runs: pd.DataFrame, algorithms: list[str]) -> list[Cell]:
        sound = runs.assign(
            scores=[
                {id: counts for id, counts in scores.items() if id not in flawed}
                for scores, flawed in zip(runs.scores, runs.flawed, strict=True)
            ]
        )
        means = pairs.mean_scores(sound, self.metric)
        return super().cells(sound.assign(**{self.metric: means}), algorithms)


def intervals(measured: Measured) -> Table:
    """Return Table 9: mean accuracy with its 95 % interval, also without flawed problems."""
    blocks = by_benchmark(measured, lambda name: _accuracies(measured, name))
    rows, seeds = measured.rows(measured.algorithms), measured.params.tables.main.seeds
    return algorithm_table("intervals", measured, rows, blocks, seeds)


def _accuracies(measured: Measured, benchmark: str) -> list[Column]:
    """Return the columns of a benchmark: its pass@k, then those without flawed problems, if any."""
    shown = accuracy(measured.params, benchmark)
    columns: list[Column] = [Interval(column.title, column.metric, column.show) for column in shown]
    if measured.problems[benchmark].get_flaws("test"):
        columns += [
            SoundInterval(f"{column.title} (sound)", column.metric, column.show) for column in shown
        ]
    return columns


# Comparisons --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """A paired comparison of two algorithms in the metric of a column."""

    contest: Contest
    column: Column
    ours: str
    reference: str = BASELINE

    @cached_property
    def estimate(self) -> Estimate | None:
        """The paired ratio or difference; None if no seed has both algorithms."""
        ours, reference = self.contest.of(self.ours), self.contest.of(self.reference)
        return self.column.paired.of_runs(ours, reference, self.column.metric)

    @property
    def printed(self) -> float | None:
        """The same comparison of the paper's means; None if the paper lacks one of them."""
        contest, paper_mean, place = self.contest, paper.main, self.contest.benchmark
        if contest.family:
            paper_mean, place = paper.family, contest.model
        means = [
            paper_mean(place, name, self.column.metric) for name in (self.ours, self.reference)
        ]
        return None if None in means else self.column.paired.of_means(*means)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The value of each run of both algorithms."""
        return self.column.sources(self.contest.of(self.ours, self.reference), labels.run)

    @property
    def p(self) -> float | None:
        """The p of no difference; None if the estimate has no interval."""
        estimate = self.estimate
        return estimate.p_at(self.column.paired.equal) if estimate and estimate.p_at else None

    def cell(self) -> Cell:
        """Return the cell of Table 8: the estimate, its interval and p, and the paper's value."""
        estimate, show = self.estimate, self.column.paired.show
        if estimate is None:
            of_runtime = self.column.metric == RUNTIME.metric
            return Cell(MISSING, reason=UNPAIRED + " with scores by problem" * (not of_runtime))
        under = [] if self.p is None else [f"p {formats.p_value(self.p, '= ')}"]
        under += [] if self.printed is None else [f"paper: {show(self.printed)}"]
        names = f"{labels.algorithm(self.ours)} against {labels.algorithm(self.reference)}"
        return estimate_cell(
            show,
            estimate,
            under=tuple(under),
            reason=""
            if self.p is not None
            else "a single pair of runs gives no variance for a test",
            detail=f"{names}: {estimate.over}.",
            sources=self.sources,
        )


def comparisons(measured: Measured) -> Table:
    """Return Table 8: RAPID at each H compared with the baseline, and the paper's comparison."""
    columns = [
        (contest, [*accuracy(measured.params, contest.benchmark), RUNTIME])
        for contest in measured.contests.values()
    ]
    rapids = columns[0][0].rapids
    compared = [
        Comparison(contest, column, rapid)
        for contest, shown in columns
        for column in shown
        for rapid in rapids
    ]
    groups = {
        contest.label: {column.title: _against_baseline(contest, column) for column in shown}
        for contest, shown in columns
    }
    ps = np.array([comparison.p for comparison in compared if comparison.p is not None])
    return build_table(
        "comparisons",
        measured,
        [[(labels.ratio(rapid), rapid) for rapid in rapids]],
        groups,
        compared=len(ps),
        significant=(ps <= 1 - LEVEL).sum(),
        significant_together=(holm(ps) <= 1 - LEVEL).sum(),
        detectable=_detectable_differences(compared),
    )


def _against_baseline(contest: Contest, column: Column) -> Cells:
    return by_row(lambda rapid: Comparison(contest, column, rapid).cell())


def _detectable_differences(compared: list[Comparison]) -> list[str]:
    """Return the smallest difference in Pass@1 that a comparison detects, for each benchmark.

    It is the median over H of the true difference that is detected with a power of 80 %.
    """
    by_label: dict[str, list[float]] = {}
    for comparison in compared:
        if (
            comparison.column.metric == "pass@1"
            and comparison.estimate
            and comparison.estimate.error
        ):
            by_label.setdefault(comparison.contest.label, []).append(
                detectable(comparison.estimate)
            )
    return [
        f"{100 * np.median(values):.1f} points on {label}" for label, values in by_label.items()
    ]
