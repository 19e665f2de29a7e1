"""Figures with a column of panels for each benchmark.

`panel_figure` lays out the panels, and lists the missing runs and the files that the figure is made
from. `by_h` makes a whole figure of metrics by H, the number of optimizer steps per inference
batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from reports import formats
from reports.collect import get_result_path
from reports.plots import style
from reports.plots.style import Canvas, Figure, LegendEntries
from reports.report_data import BenchmarkRuns, ReportData
from reports.tables.columns import explain_missing_runs


class Series(NamedTuple):
    """Runs that a figure shows, the metrics that it draws of them, and a label for messages."""

    label: str
    runs: pd.DataFrame
    metrics: Sequence[str]


def panel_figure(
    data: ReportData,
    *draw_rows: Callable[[Axes, BenchmarkRuns], LegendEntries],
    series: Sequence[Series] = (),
    share_y: bool = False,
    height: float = style.HEIGHT,
    **fields,
) -> Figure:
    """Return a figure with a row of panels for each function, and a column for each benchmark.

    Args:
        draw_rows: a function for each row, which draws the runs on a benchmark into a panel and
            returns entries of the legend.
        series: the runs in the figure, from which missing runs and source files are listed.
        height: height of a row, in inches.
        fields: further fields of `Figure`. They replace the fields that are derived from `series`
            and from the benchmarks.
    """
    selections = list(data.runs_by_benchmark.values())
    reasons = {part.label: explain_missing_runs(part.runs, part.metrics) for part in series}
    sources = [
        get_result_path(run, metric)
        for part in series
        for metric in part.metrics
        for _, run in part.runs.iterrows()
    ]

    def draw(width: float) -> Canvas:
        size = width, height * len(draw_rows)
        canvas, panels = style.create_canvas(*size, len(draw_rows), len(selections), sharey=share_y)
        entries: LegendEntries = {}
        for row, draw_panel in zip(panels, draw_rows, strict=True):
            for axes, benchmark_runs in zip(row, selections, strict=True):
                style.set_title(axes, benchmark_runs.label)
                entries |= draw_panel(axes, benchmark_runs)
            for axes in row[1:]:
                if axes.get_ylabel() == row[0].get_ylabel():
                    axes.set_ylabel("")
        style.draw_legend(canvas, entries)
        return canvas

    derived = {
        "problems": [*data.problems.values()],
        "missing": [f"{label}: {reason}" for label, reason in reasons.items() if reason],
        "sources": list(dict.fromkeys(sources)),
        "wide": len(selections) > 1,
    }
    return Figure(draw=draw, **derived | fields)


@dataclass(frozen=True)
class Quantity:
    """A metric to draw on a y-axis, multiplied by `scale`.

    A duration is drawn in a unit that suits the longest one instead.
    """

    metric: str
    label: str
    scale: float = 1.0
    is_duration: bool = False


def by_h(data: ReportData, quantities: list[Quantity], title: str, caption: str) -> Figure:
    """Return a figure with a row for each metric, by RAPID's H, over the runs of Table 3."""
    series = [
        Series(f"{data.label_benchmark(name)}, {quantity.label}", runs, [quantity.metric])
        for name, runs in data.h_sweeps.items()
        for quantity in quantities
    ]
    draw_rows = (partial(_draw_by_h, data, quantity) for quantity in quantities)
    return panel_figure(data, *draw_rows, series=series, title=title, caption=caption)


def _draw_by_h(
    data: ReportData, quantity: Quantity, axes: Axes, benchmark_runs: BenchmarkRuns
) -> LegendEntries:
    runs = data.h_sweeps[benchmark_runs.benchmark].dropna(subset=[quantity.metric])
    if runs.empty:
        return style.draw_empty(axes)
    scale, label = quantity.scale, quantity.label
    if quantity.is_duration:
        unit, unit_seconds = formats.choose_time_unit(runs[quantity.metric].max())
        scale, label = 1 / unit_seconds, f"{label} ({unit})"
    values = scale * runs[quantity.metric]
    means = values.groupby(runs.H).mean()
    axes.plot(means.index, means, "-o", color=style.BLUE, mec="black", mew=0.5, clip_on=False)
    axes.plot(runs.H, values, "x", color=style.RED, ms=4, clip_on=False)
    axes.set_xscale("log", base=2)
    ticks = sorted(runs.H.unique())
    axes.set_xticks(ticks, [f"{h:.0f}" for h in ticks])
    axes.minorticks_off()
    axes.set_xlabel("H")
    axes.set_ylabel(label)
    axes.set_ylim(0, max(1.12 * values.max(), 1e-3))
    return {}
