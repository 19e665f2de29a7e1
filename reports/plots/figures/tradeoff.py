"""Accuracy against training time, with a point for each algorithm."""

import pandas as pd
from matplotlib.axes import Axes

from rapid.config.specs import BASE
from reports import formats, labels
from reports.plots import style
from reports.plots.panels import Series, panel_figure
from reports.plots.series_styles import SeriesStyle, assign_report_styles
from reports.plots.style import Figure, LegendEntries
from reports.report_data import BenchmarkRuns, ReportData
from reports.statistics import pairs
from reports.tables.columns import list_accuracy_columns


def figure(data: ReportData) -> Figure:
    """Return a panel for each benchmark, with a point for each algorithm."""
    metrics = {
        name: list_accuracy_columns(data.params, name)[0].metric for name in data.runs_by_benchmark
    }
    styles = assign_report_styles(data)
    return panel_figure(
        data,
        lambda axes, benchmark_runs: _draw_points(
            axes, benchmark_runs, metrics[benchmark_runs.benchmark], styles
        ),
        series=[
            Series(
                f"{labels.algorithm(name)} on {benchmark_runs.label}",
                benchmark_runs.select(name),
                [metrics[benchmark], *([] if name == BASE else ["runtime"])],
            )
            for benchmark, benchmark_runs in data.runs_by_benchmark.items()
            for name in benchmark_runs.algorithms
        ],
        title="Accuracy against training time",
        caption="Large markers are means over seeds with the 95 % confidence interval of accuracy, "
        "where runs have scores by problem, and the range of times; small ones are single runs. "
        "The dashed line is the model before training. Up and to the left is better. SFT's time "
        "leaves out making its demonstrations.",
    )


def _draw_points(
    axes: Axes, benchmark_runs: BenchmarkRuns, metric: str, styles: dict[str, SeriesStyle]
) -> LegendEntries:
    trained = benchmark_runs.frame[benchmark_runs.frame.algorithm != BASE]
    trained = trained.dropna(subset=["runtime", metric])
    if trained.empty:
        return style.draw_empty(axes)
    unit, unit_seconds = formats.choose_time_unit(trained.runtime.max())
    entries: LegendEntries = {}
    if pd.notna(base := benchmark_runs.select(BASE)[metric].mean()):
        entries["Base"] = axes.axhline(100 * base, color="black", lw=0.8, ls=style.DASHED)
    for name in benchmark_runs.algorithms:
        runs = trained[trained.algorithm == name]
        if runs.empty:
            continue
        series_style = styles[name]
        times, shares = runs.runtime / unit_seconds, 100 * runs[metric]
        axes.plot(
            times,
            shares,
            color=series_style.color,
            ms=2.5,
            alpha=0.5,
            ls="",
            **series_style.markers,
        )
        x, y = times.mean(), shares.mean()
        mean = pairs.estimate_accuracy(runs, metric)
        # Rounding errors can make a length of 0 negative, which matplotlib refuses.
        error = mean and [[max(0.0, y - 100 * mean.low)], [max(0.0, 100 * mean.high - y)]]
        edge = series_style.color if series_style.is_hollow else "black"
        entries[labels.algorithm(name)] = axes.errorbar(
            x, y, yerr=error, xerr=[[x - times.min()], [times.max() - x]], ls="", ms=6, lw=0.8,
            color=series_style.color, markeredgecolor=edge, markeredgewidth=0.5,
            **series_style.markers,
        )  # fmt: skip
    axes.set_xlabel(f"training time ({unit})")
    axes.set_xlim(0, (1 + style.FREE_SHARE) * trained.runtime.max() / unit_seconds)
    axes.xaxis.set_major_locator(style.create_few_ticks())
    axes.set_ylabel(f"{metric.capitalize()} (%)")
    return entries
