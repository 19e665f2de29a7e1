"""Figures of the studies: accuracy of each variant, and accuracy by training time.

A study is usually an ablation (docs/studies.md). It compares algorithms or variants of one, all of
which are called variants here, with the first of them on a benchmark. Only runs that saved
snapshots of the model during training have curves of accuracy by time.
"""

import numpy as np
from matplotlib.axes import Axes

from rapid.algorithms import RAPID
from reports import formats, labels
from reports.plots import style
from reports.plots.series_styles import SeriesStyle, assign_styles
from reports.plots.style import Figure, LegendEntries
from reports.plots.sweeps import build_sweep_figure
from reports.report_data import ReportData
from reports.statistics import curves, pairs
from reports.statistics.curves import AccuracyCurve
from reports.tables.study_runs import StudyRuns, list_studies

POINTS = 200  # number of points of a drawn curve


def build_figures(data: ReportData) -> dict[str, Figure]:
    """Return the figures of all studies by name."""
    figures = {}
    for study in list_studies(data):
        figures[study.name] = _build_variants_figure(study)
        if study.curves:
            figures[f"{study.name}-curves"] = build_curves_figure(study)
        if study.sweep:
            figures[f"{study.name}-sweep"] = build_sweep_figure(data.params, study)
    return figures


# Variants -----------------------------------------------------------------------------------------


def _build_variants_figure(study: StudyRuns) -> Figure:
    folders = [*study.untrained.evaluation, *study.runs.frame.evaluation]
    return Figure(
        title=study.title,
        caption=(
            f"{study.metric.capitalize()}: large markers are means over seeds with their 95 % "
            "confidence interval over problems and seeds, small ones are single runs. The dashed "
            f"line is {labels.describe_start_model(study.start)}, the dotted one the mean of the "
            "first row."
        ),
        draw=lambda width: _draw_variants(study, width),
        problems=[study.runs.problems],
        missing=study.list_missing_runs(),
        sources=[f"{folder}/evaluation.json" for folder in folders],
        wide=False,
    )


def _draw_variants(study: StudyRuns, width: float):
    algorithms, metric = study.runs.algorithms, study.metric
    canvas, ((axes,),) = style.create_canvas(width, height=0.8)  # inches; rows are added below
    lines_per_name = style.name_rows(axes, [study.label_variant(name) for name in algorithms])
    style.make_room_for_lines(canvas, len(algorithms) * (lines_per_name + 1))
    reference = study.runs.select(study.reference)
    for runs, line in ((study.untrained, style.DASHED), (reference, style.DOTTED)):
        if not np.isnan(value := runs[metric].mean()):
            axes.axvline(100 * value, color="black", lw=0.8, ls=line)
    for row, name in enumerate(algorithms):
        runs = study.runs.select(name).dropna(subset=[metric])
        color = style.RED if RAPID.matches_name(name) else style.BLUE
        axes.plot(100 * runs[metric], [row] * len(runs), "x", color=color, ms=3.5, alpha=0.6)
        if (mean := pairs.estimate_accuracy(runs, metric)) is None:
            axes.text(
                0.03, row, "no runs", transform=axes.get_yaxis_transform(), va="center",
                color=style.GREY, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )  # fmt: skip
            continue
        error = [[100 * (mean.value - mean.low)], [100 * (mean.high - mean.value)]]
        axes.errorbar(
            100 * mean.value, row, xerr=error, fmt="o", color=color, mec="black", mew=0.5, ms=6,
            lw=1, capsize=2,
        )  # fmt: skip
    axes.set_xlabel(f"{metric.capitalize()} (%)")
    return canvas


# Accuracy by training time ------------------------------------------------------------------------


def build_curves_figure(study: StudyRuns) -> Figure:
    """Return the figure of accuracy by training time, and of training time by accuracy."""
    runs = [
        (name, run, run.seed in by_seed)
        for name, by_seed in study.curves.items()
        for _, run in study.runs.select(name).iterrows()
    ]
    return Figure(
        title="Accuracy by training time, and training time by accuracy",
        caption=(
            f"{study.metric.capitalize()} on the test problems, of snapshots saved during "
            "training. Left: means over seeds, until the shortest run ends; bands are one standard "
            "deviation. Right: training time until an accuracy is first reached; thick lines are "
            "means over seeds, up to the accuracy that all seeds reach, thin lines single runs."
        ),
        draw=lambda width: _draw_curves(study, width),
        problems=[study.runs.problems],
        missing=[
            f"{labels.algorithm(name)}, seed {run.seed}: no curve"
            for name, run, has_curve in runs
            if not has_curve
        ],
        sources=[curves.get_curve_path(run) for _, run, has_curve in runs if has_curve],
    )


def _draw_curves(study: StudyRuns, width: float):
    canvas, ((left, right),) = style.create_canvas(width, style.HEIGHT, columns=2)
    all_curves = [curve for by_seed in study.curves.values() for curve in by_seed.values()]
    if not all_curves:
        for axes in (left, right):
            style.draw_empty(axes)
        return canvas
    unit, unit_seconds = formats.choose_time_unit(max(curve.seconds[-1] for curve in all_curves))
    low = min(curve.accuracy[0] for curve in all_curves)
    high = max(max(curve.accuracy) for curve in all_curves)
    accuracies = np.linspace(low, high, POINTS)
    styles = assign_styles(study.curves)
    entries: LegendEntries = {}
    for name, by_seed in study.curves.items():
        if runs := list(by_seed.values()):
            entries[study.label_variant(name)] = _draw_by_seconds(
                left, runs, styles[name], unit_seconds
            )
            _draw_by_accuracy(right, runs, styles[name], accuracies, unit_seconds)
    title = f"{study.metric.capitalize()} (%)"
    left.set(xlabel=f"training time ({unit})", ylabel=title, xlim=(0, None))
    right.set(xlabel=title, ylabel=f"time until it is reached ({unit})")
    right.set_ylim(bottom=0)
    style.draw_legend(canvas, entries)
    return canvas


def _draw_by_seconds(
    axes: Axes, runs: list[AccuracyCurve], series_style: SeriesStyle, unit_seconds: float
) -> object:
    grid = np.linspace(0, min(curve.seconds[-1] for curve in runs), POINTS)
    values = 100 * np.stack([curve.accuracy_at(grid) for curve in runs])  # (runs, POINTS)
    deviation = values.std(0, ddof=1) if len(runs) > 1 else None
    return style.draw_line(axes, series_style, grid / unit_seconds, values.mean(0), deviation)


def _draw_by_accuracy(
    axes: Axes,
    runs: list[AccuracyCurve],
    series_style: SeriesStyle,
    accuracies: np.ndarray,
    unit_seconds: float,
) -> None:
    seconds = [[curve.seconds_to_reach(accuracy) for accuracy in accuracies] for curve in runs]
    times = np.array(seconds, dtype=float) / unit_seconds  # (runs, POINTS), NaN where never reached
    for run_times in times:
        axes.plot(100 * accuracies, run_times, color=series_style.color, lw=0.5, alpha=0.5)
    style.draw_line(axes, series_style, 100 * accuracies, times.mean(0))
