"""Table 9, accuracies with confidence intervals, and Table 8, RAPID compared with the baseline.

RAPID has a row for each H, the number of optimizer steps per inference batch.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from reports import formats, labels, paper
from reports.report_data import BASELINE, BenchmarkRuns, ReportData
from reports.statistics import pairs
from reports.statistics.decisions import adjust_by_holm, compute_detectable_difference
from reports.statistics.estimates import CONFIDENCE_LEVEL, Estimate
from reports.tables.columns import (
    RUNTIME,
    Column,
    build_algorithm_table,
    build_blocks,
    list_accuracy_columns,
)
from reports.tables.layout import ColumnGroups, apply_by_row, build_table
from reports.tables.table import MISSING, Cell, Source, Table, build_estimate_cell

NO_SCORES = "no interval, because the runs do not all have scores of the same problems"
NO_PAIR = "no seed has runs of both"
NO_RUNTIME_PAIR = f"{NO_PAIR} on one kind of hardware"


# Intervals ----------------------------------------------------------------------------------------


class IntervalColumn(Column):
    """A column of accuracy that shows the interval in place of the standard deviation."""

    def build_cell(self, runs: pd.DataFrame) -> Cell:
        cell, accuracy = super().build_cell(runs), pairs.estimate_accuracy(runs, self.metric)
        if accuracy is None and cell.text == MISSING:
            return cell
        if accuracy is None:
            reason = "; ".join(filter(None, [cell.reason, NO_SCORES]))
            return replace(cell, deviation="", reason=reason)
        # `sample` says in words from how many runs and problems the interval was computed.
        lines, detail = (cell.interval,), f"{accuracy.sample}."
        return replace(cell, deviation="", extra_lines=lines, detail=detail)


class SoundIntervalColumn(IntervalColumn):
    """The accuracy over the test problems whose statement has no known flaw."""

    def build_cells(self, runs: pd.DataFrame, algorithms: list[str]) -> list[Cell]:
        sound_runs = runs.assign(
            scores=[
                {id: counts for id, counts in scores.items() if id not in flawed}
                for scores, flawed in zip(runs.scores, runs.flawed, strict=True)
            ]
        )
        accuracies = pairs.compute_run_accuracies(sound_runs, self.metric)
        return super().build_cells(sound_runs.assign(**{self.metric: accuracies}), algorithms)


def build_intervals_table(data: ReportData) -> Table:
    """Return Table 9: mean accuracy with its 95 % interval, also without flawed problems."""
    blocks = build_blocks(data, lambda name: _list_interval_columns(data, name))
    rows, seeds = data.label_rows(data.algorithms), data.params.tables.main.seeds
    return build_algorithm_table("intervals", data, rows, blocks, seeds)


def _list_interval_columns(data: ReportData, benchmark: str) -> list[Column]:
    """Return the columns of a benchmark: its pass@k, then those without flawed problems, if any."""
    accuracies = list_accuracy_columns(data.params, benchmark)
    columns: list[Column] = [
        IntervalColumn(column.title, column.metric, column.show) for column in accuracies
    ]
    if data.problems[benchmark].get_flaws("test"):
        columns += [
            SoundIntervalColumn(f"{column.title} (sound)", column.metric, column.show)
            for column in accuracies
        ]
    return columns


# Comparisons --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """A paired comparison of two algorithms in the metric of a column."""

    runs: BenchmarkRuns
    column: Column
    ours: str
    reference: str = BASELINE

    @cached_property
    def estimate(self) -> Estimate | None:
        """The paired ratio or difference; None if no seed has comparable runs of both."""
        ours, reference = self.runs.select(self.ours), self.runs.select(self.reference)
        return self.column.paired.compare_runs(ours, reference, self.column.metric)

    @property
    def paper_value(self) -> float | None:
        """The same comparison of the paper's means; None if the paper lacks one of them."""
        if self.runs.is_main_model:
            get_mean, key = paper.get_main_value, self.runs.benchmark
        else:
            get_mean, key = paper.get_family_value, self.runs.model
        means = [get_mean(key, name, self.column.metric) for name in (self.ours, self.reference)]
        return None if None in means else self.column.paired.compare_means(*means)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The value of each run of both algorithms."""
        return self.column.list_sources(self.runs.select(self.ours, self.reference), labels.run)

    @property
    def p(self) -> float | None:
        """p for the hypothesis of no difference; None if the estimate has no interval."""
        if self.estimate is None or self.estimate.p_at is None:
            return None
        return self.estimate.p_at(self.column.paired.no_difference)

    @property
    def missing_reason(self) -> str:
        """Why `estimate` is None."""
        if self.column.metric == RUNTIME.metric:
            return NO_RUNTIME_PAIR
        is_accuracy = self.column.metric.startswith(pairs.PASS_AT)
        return f"{NO_PAIR} with scores by problem" if is_accuracy else NO_PAIR

    def build_cell(self) -> Cell:
        """Return the cell of Table 8: the estimate, its interval and p, and the paper's value."""
        estimate, show = self.estimate, self.column.paired.show
        if estimate is None:
            return Cell(MISSING, reason=self.missing_reason)
        lines, reason = [], pairs.SINGLE_PAIR
        if self.p is not None:
            lines, reason = [f"p {formats.p_value(self.p, '= ')}"], ""
        if self.paper_value is not None:
            lines.append(f"paper: {show(self.paper_value)}")
        names = f"{labels.algorithm(self.ours)} against {labels.algorithm(self.reference)}"
        return build_estimate_cell(
            show,
            estimate,
            extra_lines=tuple(lines),
            reason=reason,
            detail=f"{names}: {estimate.sample}.",
            sources=self.sources,
        )


def build_comparisons_table(data: ReportData) -> Table:
    """Return Table 8: RAPID at each H compared with the baseline, and the paper's comparison."""
    groups: ColumnGroups = {}
    comparisons: list[Comparison] = []
    for runs in data.runs_by_benchmark.values():
        for column in (*list_accuracy_columns(data.params, runs.benchmark), RUNTIME):
            by_rapid = {rapid: Comparison(runs, column, rapid) for rapid in runs.rapid_algorithms}
            comparisons += by_rapid.values()
            groups.setdefault(runs.label, {})[column.title] = apply_by_row(
                lambda rapid, by_rapid=by_rapid: by_rapid[rapid].build_cell()
            )
    rapid_algorithms = list(dict.fromkeys(comparison.ours for comparison in comparisons))
    ps = np.array([comparison.p for comparison in comparisons if comparison.p is not None])
    return build_table(
        "comparisons",
        data,
        sections=[[(labels.h_label(rapid), rapid) for rapid in rapid_algorithms]],
        groups=groups,
        # Numbers in the caption and the notes of the table (captions.yaml).
        comparisons=len(ps),
        significant=(ps <= 1 - CONFIDENCE_LEVEL).sum(),
        significant_adjusted=(adjust_by_holm(ps) <= 1 - CONFIDENCE_LEVEL).sum(),
        detectable=_describe_detectable_differences(comparisons),
    )


def _describe_detectable_differences(comparisons: list[Comparison]) -> list[str]:
    """Return the difference in Pass@1 that a comparison detects in 80 % of cases, by benchmark.

    It is the median over H.
    """
    by_label: dict[str, list[float]] = {}
    for comparison in comparisons:
        estimate = comparison.estimate
        if comparison.column.metric == "pass@1" and estimate and estimate.error:
            difference = compute_detectable_difference(estimate)
            by_label.setdefault(comparison.runs.label, []).append(difference)
    return [
        f"{100 * np.median(values):.1f} points on {label}" for label, values in by_label.items()
    ]
