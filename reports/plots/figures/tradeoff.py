"""Accuracy against training time, with a point for each algorithm."""

import pandas as pd
from matplotlib.axes import Axes

from rapid.config.specs import BASE
from reports import formats, labels
from reports.measured import Contest, Measured
from reports.plots import style
from reports.plots.looks import SeriesLook, looks_of_report
from reports.plots.panels import Series, panel_figure
from reports.plots.style import Entries, Figure
from reports.statistics import pairs
from reports.tables.columns import accuracy


def figure(measured: Measured) -> Figure:
    """Return a panel for each benchmark, with a point for each algorithm."""
    metrics = {name: accuracy(measured.params, name)[0].metric for name in measured.contests}
    looks = looks_of_report(measured)
    return panel_figure(
        measured,
        lambda axes, contest: _draw_points(axes, contest, metrics[contest.benchmark], looks),
        series=[
            Series(
                f"{labels.algorithm(name)} on {contest.label}",
                contest.of(name),
                [metrics[benchmark], *([] if name == BASE else ["runtime"])],
            )
            for benchmark, contest in measured.contests.items()
            for name in contest.algorithms
        ],
        title="Accuracy against training time",
        caption="Large markers are means over seeds with the 95 % confidence interval of accuracy, "
        "where runs have scores by problem, and the range of times; small ones are single runs. "
        "The dashed line is the model before training. Up and to the left is better. SFT's time "
        "leaves out making its demonstrations.",
    )


def _draw_points(
    axes: Axes, contest: Contest, metric: str, looks: dict[str, SeriesLook]
) -> Entries:
    trained = contest.runs[contest.runs.algorithm != BASE].dropna(subset=["runtime", metric])
    if trained.empty:
        return style.draw_empty(axes)
    unit, length = formats.time_unit(trained.runtime.max())
    entries: Entries = {}
    if pd.notna(base := contest.of(BASE)[metric].mean()):
        entries["Base"] = axes.axhline(100 * base, color="black", lw=0.8, ls=(0, (6, 3)))
    for name in contest.algorithms:
        runs = trained[trained.algorithm == name]
        if runs.empty:
            continue
        look = looks[name]
        times, shares = runs.runtime / length, 100 * runs[metric]
        axes.plot(times, shares, color=look.color, ms=2.5, alpha=0.5, ls="", **look.markers)
        x, y = times.mean(), shares.mean()
        # Rounding can make a length of 0 negative, which matplotlib refuses.
        mean = pairs.accuracy(runs, metric)
        ends = mean and [[max(0.0, y - 100 * mean.low)], [max(0.0, 100 * mean.high - y)]]
        edge = look.color if look.hollow else "black"
        entries[labels.algorithm(name)] = axes.errorbar(
            x, y, ends, [[x - times.min()], [times.max() - x]], ls="", color=look.color, ms=6,
            lw=0.8, markeredgecolor=edge, markeredgewidth=0.5, **look.markers,
        )  # fmt: skip
    axes.set_xlabel(f"training time ({unit})")
    axes.set_xlim(0, (1 + style.ROOM) * trained.runtime.max() / length)
    axes.xaxis.set_major_locator(style.few_ticks())
    axes.set_ylabel(f"{metric.capitalize()} (%)")
    return entries
