"""A column of a table: means over seeds, ranked, each with the runs that it is from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from rapid.config.specs import BASE
from reports import compare, formats, notes
from reports.collect import of_evaluation, why_missing
from reports.compare import UNRANKED_RUNTIME
from reports.statistics import correlate, marks, spread
from reports.table import MISSING, NOT_APPLICABLE, Cell, Source


@dataclass(frozen=True)
class Metric:
    """A column: its heading, its name in the data frame, how it is printed and ranked."""

    title: str
    column: str
    show: formats.Format
    higher_is_better: bool | None = None  # None: not ranked


def column(frame: pd.DataFrame, algorithms: list[str], metric: Metric) -> list[Cell]:
    """The cells of one metric, a row an algorithm. The best is marked, and what is within noise of it."""
    cells, ranked, as_printed = [], [], {}
    by_algorithm = {name: frame[frame.algorithm == name] for name in algorithms}
    for algorithm, runs in by_algorithm.items():
        if metric.column == "runtime" and algorithm == BASE:
            cells.append(Cell(NOT_APPLICABLE))
            ranked.append(None)
            continue
        cell, mean = mean_cell(runs, metric), spread(runs[metric.column]).mean
        cells.append(cell)
        contest = metric.column != "runtime" or algorithm not in UNRANKED_RUNTIME
        # Means that print the same are a tie: all of them count as the first one met.
        ranked.append(as_printed.setdefault(cell.text, mean) if contest else None)
    if metric.higher_is_better is None:
        return cells
    found = marks(ranked, metric.higher_is_better)
    if "best" not in found:
        return cells
    best = by_algorithm[algorithms[found.index("best")]]
    tied = [
        mark != "best"
        and value is not None
        and compare.within_noise(by_algorithm[algorithm], best, metric.column)
        for mark, value, algorithm in zip(found, ranked, algorithms, strict=True)
    ]
    return [
        replace(cell, mark=mark, tied=tie)
        for cell, mark, tie in zip(cells, found, tied, strict=True)
    ]


def mean_cell(runs: pd.DataFrame, metric: Metric) -> Cell:
    """Mean and standard deviation over the runs (one a seed) that have the metric."""
    result = spread(runs[metric.column])
    reason = gaps(runs, [metric.column])
    if result.mean is None:
        return Cell(MISSING, reason=reason, sources=sources(runs, metric))
    deviation = interval = ""
    if result.deviation is not None:
        deviation = metric.show(result.deviation, like=result.mean)
    if of_evaluation(metric.column) and (known := compare.accuracy(runs, metric.column)):
        interval = formats.interval(formats.percent, known.low, known.high)
    return Cell(
        metric.show(result.mean),
        deviation,
        reason=reason,
        interval=interval,
        detail=f"n = {result.n} run{'' if result.n == 1 else 's'}.",
        sources=sources(runs, metric),
    )


def correlation_cell(runs: pd.DataFrame, name: str) -> Cell:
    """Of H with a column of the data frame."""
    found = correlate(runs["H"], runs[name])
    missing = gaps(runs, [name])
    if found.r is None:
        reason = "; ".join(part for part in (found.reason, missing) if part)
        return Cell(MISSING, reason=reason)
    interval = ""
    if found.low is not None:
        interval = formats.interval(formats.correlation, found.low, found.high)
    shown = Metric(name, name, formats.plain)
    return Cell(
        formats.correlation(found.r),
        reason=missing,
        interval=interval,
        detail=f"Pearson's r over n = {found.n} runs.",
        sources=sources(runs, shown, label=lambda run: f"H = {run['H']:.0f}, seed {run['seed']}"),
    )


def sources(
    runs: pd.DataFrame, metric: Metric, label=lambda run: f"seed {run['seed']}"
) -> tuple[Source, ...]:
    """The file behind each run's value."""
    path = "evaluation_path" if of_evaluation(metric.column) else "summary_path"
    return tuple(
        Source(
            label(run),
            MISSING if pd.isna(run[metric.column]) else metric.show(run[metric.column]),
            run[path],
        )
        for _, run in runs.iterrows()
    )


def named_sources(runs: pd.DataFrame, metric: Metric) -> tuple[Source, ...]:
    """`sources` of several algorithms."""
    return sources(
        runs, metric, label=lambda run: f"{notes.algorithm(run['algorithm'])}, seed {run['seed']}"
    )


def gaps(runs: pd.DataFrame, columns: Sequence[str]) -> str:
    """Why runs lack one of the columns, and how many do; "" where none lacks any."""
    reasons = []
    for _, run in runs.iterrows():
        lacking = [why_missing(run, column) for column in columns if pd.isna(run[column])]
        if lacking:
            reasons.append(lacking[0])
    if not reasons:
        return ""
    text = "; ".join(dict.fromkeys(reasons))
    return (
        text
        if len(reasons) == len(runs)
        else f"leaves out {len(reasons)} of {len(runs)} runs: {text}"
    )
