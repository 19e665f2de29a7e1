"""Figures of the studies: accuracy of each variant, and accuracy by training time.

A study is an ablation: it compares variants of an algorithm on one benchmark with the first of
these variants (docs/studies.md). Curves are of runs that saved snapshots of the model during
training.
"""

import numpy as np
from matplotlib.axes import Axes

from rapid.algorithms import RAPID
from reports import formats, labels
from reports.measured import Measured
from reports.plots import style
from reports.plots.looks import SeriesLook, assign_looks
from reports.plots.style import Entries, Figure
from reports.plots.sweeps import draw_sweep
from reports.statistics import curves, pairs
from reports.statistics.curves import AccuracyCurve
from reports.tables.columns import missing_reasons
from reports.tables.study_runs import StudyRuns, studies

POINTS = 200  # number of points of a drawn curve


def figures(measured: Measured) -> dict[str, Figure]:
    """Return the figures of all studies by name."""
    by_name = {}
    for study in studies(measured):
        by_name[study.name] = _variants_figure(study)
        if study.curves:
            by_name[f"{study.name}-curves"] = curves_figure(study)
        if study.sweep:
            by_name[f"{study.name}-sweep"] = draw_sweep(measured.params, study)
    return by_name


# Variants -----------------------------------------------------------------------------------------


def _variants_figure(study: StudyRuns) -> Figure:
    folders = [*study.before.evaluation, *study.contest.runs.evaluation]
    return Figure(
        title=study.title,
        caption=(
            f"{study.metric.capitalize()}: large markers are means over seeds with their 95 % "
            "confidence interval over problems and seeds, small ones are single runs. The dashed "
            f"line is {labels.model_of(study.start)}, the dotted one the mean of the first row."
        ),
        draw=lambda width: _draw_variants(study, width),
        problems=[study.contest.problems],
        missing=[
            f"{study.label(name)}: {reason}"
            for name in study.contest.algorithms
            if (reason := missing_reasons(study.contest.of(name), [study.metric]))
        ],
        sources=[f"{folder}/evaluation.json" for folder in folders],
        wide=False,
    )


def _draw_variants(study: StudyRuns, width: float):
    algorithms, metric = study.contest.algorithms, study.metric
    canvas, ((axes,),) = style.create_canvas(width, 0.8)
    lines = style.name_rows(axes, [study.label(name) for name in algorithms])
    style.add_lines(canvas, len(algorithms) * (lines + 1))
    before, reference = study.before, study.contest.of(study.reference)
    for runs, line in ((before, (0, (6, 3))), (reference, (0, (1, 2)))):
        if not np.isnan(value := runs[metric].mean()):
            axes.axvline(100 * value, color="black", lw=0.8, ls=line)
    for row, name in enumerate(algorithms):
        runs = study.contest.of(name).dropna(subset=[metric])
        color = style.RED if RAPID.matches_name(name) else style.BLUE
        axes.plot(100 * runs[metric], [row] * len(runs), "x", color=color, ms=3.5, alpha=0.6)
        if (mean := pairs.accuracy(runs, metric)) is None:
            place = {"transform": axes.get_yaxis_transform(), "va": "center"}
            white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axes.text(0.03, row, "no runs", color=style.GREY, bbox=white, **place)
            continue
        error = [[100 * (mean.value - mean.low)], [100 * (mean.high - mean.value)]]
        axes.errorbar(
            100 * mean.value, row, xerr=error, fmt="o", color=color, mec="black", mew=0.5, ms=6,
            lw=1, capsize=2,
        )  # fmt: skip
    axes.set_xlabel(f"{metric.capitalize()} (%)")
    return canvas


# Accuracy by training time ------------------------------------------------------------------------


def curves_figure(study: StudyRuns) -> Figure:
    """Return the figure of accuracy by training time."""
    runs = [
        (name, run, run.seed in by_seed)
        for name, by_seed in study.curves.items()
        for _, run in study.contest.of(name).iterrows()
    ]
    return Figure(
        title="Accuracy by training time, and training time by accuracy",
        caption=(
            f"{study.metric.capitalize()} on the test problems, of snapshots saved during "
            "training. Left: means over seeds, until the shortest run ends; bands are one standard "
            "deviation. Right: training time until an accuracy is first reached; thick lines are "
            "means over seeds, up to the accuracy that all of them reach, thin lines single runs."
        ),
        draw=lambda width: _draw_curves(study, width),
        problems=[study.contest.problems],
        missing=[
            f"{labels.algorithm(name)}, seed {run.seed}: no curve"
            for name, run, has_curve in runs
            if not has_curve
        ],
        sources=[curves.path_of(run) for _, run, has_curve in runs if has_curve],
    )


def _draw_curves(study: StudyRuns, width: float):
    canvas, ((left, right),) = style.create_canvas(width, style.HEIGHT, columns=2)
    all_curves = [curve for by_seed in study.curves.values() for curve in by_seed.values()]
    if not all_curves:
        for axes in (left, right):
            style.draw_empty(axes)
        return canvas
    unit, length = formats.time_unit(max(curve.seconds[-1] for curve in all_curves))
    low, high = min(c.accuracy[0] for c in all_curves), max(max(c.accuracy) for c in all_curves)
    shares = np.linspace(low, high, POINTS)
    looks = assign_looks(study.curves)
    entries: Entries = {}
    for name, by_seed in study.curves.items():
        if runs := list(by_seed.values()):
            entries[study.label(name)] = _draw_by_seconds(left, runs, looks[name], length)
            _draw_by_accuracy(right, runs, looks[name], shares, length)
    title = f"{study.metric.capitalize()} (%)"
    left.set(xlabel=f"training time ({unit})", ylabel=title, xlim=(0, None))
    right.set(xlabel=title, ylabel=f"time until it is reached ({unit})")
    right.set_ylim(bottom=0)
    style.draw_legend(canvas, entries)
    return canvas


def _draw_by_seconds(
    axes: Axes, runs: list[AccuracyCurve], look: SeriesLook, unit: float
) -> object:
    grid = np.linspace(0, min(curve.seconds[-1] for curve in runs), POINTS)
    values = 100 * np.stack([curve.within(grid) for curve in runs])  # (runs, POINTS)
    deviation = values.std(0, ddof=1) if len(runs) > 1 else None
    return style.draw_line(axes, look, grid / unit, values.mean(0), deviation)


def _draw_by_accuracy(
    axes: Axes, runs: list[AccuracyCurve], look: SeriesLook, shares: np.ndarray, unit: float
) -> None:
    times = [[curve.reaches(share) for share in shares] for curve in runs]
    values = np.array(times, dtype=float) / unit  # (runs, POINTS), NaN where never reached
    for run in values:
        axes.plot(100 * shares, run, color=look.color, lw=0.5, alpha=0.5)
    style.draw_line(axes, look, 100 * shares, values.mean(0))
