"""Figures with a column of panels for each benchmark, declared by the runs that they show.

`panel_figure` lays out the panels. What the figure lacks, and which files it is from, follow from
its runs. `by_h` is a whole figure of columns of the data frame (`reports.collect`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from reports import formats
from reports.collect import file_of
from reports.measured import Contest, Measured
from reports.plots import style
from reports.plots.style import Canvas, Entries, Figure
from reports.tables.columns import gaps


class Series(NamedTuple):
    """Runs that are drawn under one label, and the metrics that each of them needs for that."""

    label: str
    runs: pd.DataFrame
    metrics: Sequence[str]


def panel_figure(
    measured: Measured,
    *draw_rows: Callable[[Axes, Contest], Entries],
    series: Sequence[Series] = (),
    share_y: bool = False,
    height: float = style.HEIGHT,
    **fields,
) -> Figure:
    """Return a figure with a row of panels for each of these functions.

    A function draws a panel, and returns what the legend shall have of it.

    Args:
        series: what is drawn of which runs.
        height: of a row, in inches.
        fields: the other fields of `Figure`.
    """
    contests = list(measured.contests.values())
    reasons = {part.label: gaps(part.runs, part.metrics) for part in series}
    sources = [
        file_of(run, metric)
        for part in series
        for metric in part.metrics
        for _, run in part.runs.iterrows()
    ]

    def draw(width: float) -> Canvas:
        size = width, height * len(draw_rows)
        canvas, panels = style.create_canvas(*size, len(draw_rows), len(contests), sharey=share_y)
        entries: Entries = {}
        for row, draw_panel in zip(panels, draw_rows, strict=True):
            for axes, contest in zip(row, contests, strict=True):
                style.set_title(axes, contest.label)
                entries |= draw_panel(axes, contest)
            _label_once(row)
        style.draw_legend(canvas, entries)
        return canvas

    derived = {
        "problems": [*measured.problems.values()],
        "missing": [f"{label}: {reason}" for label, reason in reasons.items() if reason],
        "sources": list(dict.fromkeys(sources)),
        "wide": len(contests) > 1,
    }
    return Figure(draw=draw, **derived | fields)


def _label_once(row: list[Axes]) -> None:
    """Leave out labels of y-axes that repeat that of the first panel."""
    for axes in row[1:]:
        if axes.get_ylabel() == row[0].get_ylabel():
            axes.set_ylabel("")


@dataclass(frozen=True)
class Quantity:
    """A metric on the y-axis; `scale` turns it into the unit that is shown."""

    metric: str
    label: str
    scale: float = 1.0
    seconds: bool = False  # shown in the unit of time that suits its largest value


def by_h(measured: Measured, quantities: list[Quantity], title: str, caption: str) -> Figure:
    """Return a figure of what changes with RAPID's H, over the runs of Table 3."""
    series = [
        Series(f"{measured.label(name)}, {quantity.label}", runs, [quantity.metric])
        for name, runs in measured.sweeps.items()
        for quantity in quantities
    ]
    draw_rows = (partial(_draw_by_h, measured, quantity) for quantity in quantities)
    return panel_figure(measured, *draw_rows, series=series, title=title, caption=caption)


def _draw_by_h(measured: Measured, quantity: Quantity, axes: Axes, contest: Contest) -> Entries:
    runs = measured.sweeps[contest.benchmark].dropna(subset=[quantity.metric])
    if runs.empty:
        return style.draw_empty(axes)
    scale, label = quantity.scale, quantity.label
    if quantity.seconds:
        unit, seconds = formats.time_unit(runs[quantity.metric].max())
        scale, label = 1 / seconds, f"{label} ({unit})"
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
