"""Accuracy against the time of training, a point for each algorithm."""

import pandas as pd
from matplotlib.axes import Axes

from rapid.config.specs import BASE
from reports import labels
from reports.measured import Contest, Measured
from reports.plots import style
from reports.plots.panels import Series, panel_figure
from reports.plots.style import Figure
from reports.statistics import pairs
from reports.tables.columns import accuracy


def figure(measured: Measured) -> Figure:
    """Return a panel for each benchmark, with a point for each algorithm."""
    metrics = {name: accuracy(measured.params, name)[0].metric for name in measured.contests}
    return panel_figure(
        measured,
        lambda axes, contest: _draw_points(axes, contest, metrics[contest.benchmark]),
        series=[
            Series(
                f"{labels.algorithm(name)} on {contest.label}",
                contest.of(name),
                [metrics[benchmark], *([] if name == BASE else ["runtime"])],
            )
            for benchmark, contest in measured.contests.items()
            for name in contest.algorithms
        ],
        legend_columns=5,
        title="Accuracy against training time",
        caption="Large markers are means over seeds with the 95 % interval of accuracy and the "
        "range of times; small ones are single runs. The dashed line is the model before "
        "training. Up and to the left is better; SFT's time leaves out the teacher's sampling.",
    )


def _draw_points(axes: Axes, contest: Contest, metric: str) -> None:
    trained = contest.runs[contest.runs.algorithm != BASE].dropna(subset=["runtime", metric])
    if trained.empty:
        style.draw_empty(axes)
        return
    divisor, unit = style.choose_time_unit(trained.runtime.max())
    if pd.notna(base := contest.of(BASE)[metric].mean()):
        axes.axhline(100 * base, color="black", lw=0.8, ls=(0, (6, 3)), label="Base")
    for name in contest.algorithms:
        runs = trained[trained.algorithm == name]
        if runs.empty:
            continue
        look = style.look(name)
        times, shares = runs.runtime / divisor, 100 * runs[metric]
        axes.plot(times, shares, look.marker, color=look.color, ms=2.5, alpha=0.5, ls="")
        x, y = times.mean(), shares.mean()
        # matplotlib refuses lengths below 0, which rounding makes of 0.
        mean = pairs.accuracy(runs, metric)
        ends = mean and [[max(0.0, y - 100 * mean.low)], [max(0.0, 100 * mean.high - y)]]
        axes.errorbar(
            x, y, ends, [[x - times.min()], [times.max() - x]], fmt=look.marker, color=look.color,
            markeredgecolor="black", markeredgewidth=0.5, ms=6, lw=0.8,
            label=labels.algorithm(name),
        )  # fmt: skip
    axes.set_xlabel(unit)
    axes.set_xlim(left=0)
    axes.set_ylabel(f"{metric.capitalize()} (%)")
