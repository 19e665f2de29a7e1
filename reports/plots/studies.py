"""The studies drawn: each variant's accuracy with its interval, and accuracy by time of training."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from rapid.config.params import Params
from reports import compare, curves, notes
from reports.cells import gaps
from reports.curves import Curve
from reports.plots import style
from reports.plots.style import Figure
from reports.statistics import spread
from reports.studies import Study, studies

POINTS = 200  # of a line
ROW = 0.27  # inches of a variant


def figures(params: Params, frame: pd.DataFrame, root: Path) -> list[Figure]:
    found = []
    for study in studies(params, frame):
        metric = f"pass@{params.benchmarks[study.benchmark].pass_at[0]}"
        found.append(_variants(study, metric))
        if curves.kept(study.field.algorithms):
            found.append(_by_time(study, metric, root))
    return found


# Variants -----------------------------------------------------------------------------------------


def _variants(study: Study, metric: str) -> Figure:
    runs = study.field.runs
    return Figure(
        name=study.name,
        title=study.title,
        caption=(
            f"{metric.capitalize()}: large markers are means over seeds with their 95 % interval over "
            "problems and seeds, small ones are runs. The dashed line is the model before training, "
            "the dotted one the first row."
        ),
        draw=lambda: _draw_variants(study, metric),
        missing=[
            f"{study.label(name)}: {why}"
            for name in study.field.algorithms
            if (why := gaps(study.field.of(name), [metric]))
        ],
        sources=[*study.before.evaluation_path, *runs.evaluation_path],
    )


def _draw_variants(study: Study, metric: str):
    algorithms = study.field.algorithms
    with plt.rc_context(style.SETTINGS):
        canvas, axes = plt.subplots(figsize=(style.WIDTH, 0.8 + ROW * len(algorithms)))
    reference = spread(study.field.of(study.reference)[metric]).mean
    for value, line in ((spread(study.before[metric]).mean, (0, (6, 3))), (reference, (0, (1, 2)))):
        if value is not None:
            axes.axvline(100 * value, color="black", lw=0.8, ls=line)
    for row, name in enumerate(algorithms):
        runs = study.field.of(name).dropna(subset=[metric])
        color = style.RED if RAPID.named(name) else style.BLUE
        axes.plot(100 * runs[metric], [row] * len(runs), "x", color=color, ms=3.5, alpha=0.6)
        if (known := compare.accuracy(runs, metric)) is None:
            axes.text(0.02, row, "no runs", transform=axes.get_yaxis_transform(), va="center")
            continue
        error = [[100 * (known.mean - known.low)], [100 * (known.high - known.mean)]]
        axes.errorbar(
            100 * known.mean, row, xerr=error, fmt="o", color=color, mec="black", mew=0.5, ms=6,
            lw=1, capsize=2,
        )  # fmt: skip
    axes.set_yticks(range(len(algorithms)), [study.label(name) for name in algorithms])
    axes.set_ylim(len(algorithms) - 0.5, -0.5)
    axes.set_xlabel(f"{metric.capitalize()} (%)")
    return canvas


# By time ------------------------------------------------------------------------------------------


def _by_time(study: Study, metric: str, root: Path) -> Figure:
    names = curves.kept(study.field.algorithms)
    found = {name: curves.read(study.field.of(name), study.before, metric, root) for name in names}
    missing = [
        f"{notes.algorithm(name)}, seed {seed}: no curve"
        for name in names
        for seed in study.field.of(name).seed
        if seed not in found[name]
    ]
    return Figure(
        name=f"{study.name}-curves",
        title="Accuracy by time of training, and time by accuracy",
        caption=(
            f"{metric.capitalize()} on the test problems of models kept on the way. Left: means over "
            "seeds as far as every run goes, bands one standard deviation. Right: the time until an "
            "accuracy is first reached, mean over seeds, as far as all of them reach it; thin lines "
            "are single runs."
        ),
        draw=lambda: _draw_curves(found, metric),
        missing=missing,
        sources=[
            curves.path_of(run)
            for name in names
            for _, run in study.field.of(name).iterrows()
            if run.seed in found[name]
        ],
    )


def _draw_curves(found: dict[str, dict[int, Curve]], metric: str):
    canvas, (row,) = style.panels(2)
    every = [curve for of in found.values() for curve in of.values()]
    if not every:
        for axes in row:
            style.empty(axes)
        return canvas
    divisor, unit = style.unit(max(curve.seconds[-1] for curve in every))
    low, high = min(c.accuracy[0] for c in every), max(max(c.accuracy) for c in every)
    shares = np.linspace(low, high, POINTS)
    for name, of in found.items():
        if of:
            _by_seconds(row[0], list(of.values()), name, divisor)
            _by_accuracy(row[1], list(of.values()), name, shares, divisor)
    row[0].set(xlabel=unit, ylabel=f"{metric.capitalize()} (%)", xlim=(0, None))
    row[1].set(xlabel=f"{metric.capitalize()} (%)", ylabel=f"{unit} until it is reached")
    row[1].set_ylim(bottom=0)
    style.legend(canvas, row)
    return canvas


def _by_seconds(axes, of: list[Curve], name: str, divisor: float) -> None:
    look = style.look(name)
    grid = np.linspace(0, min(curve.seconds[-1] for curve in of), POINTS)
    values = 100 * np.stack([curve.at(grid) for curve in of])  # (runs, POINTS)
    mean, x = values.mean(0), grid / divisor
    label = notes.algorithm(parse(name).plain)
    axes.plot(
        x, mean, color=look.color, ls=look.line, marker=look.marker, markevery=29, label=label
    )
    if len(of) > 1:
        spread_of = values.std(0, ddof=1)
        axes.fill_between(x, mean - spread_of, mean + spread_of, color=look.color, alpha=0.13, lw=0)


def _by_accuracy(axes, of: list[Curve], name: str, shares: np.ndarray, divisor: float) -> None:
    look = style.look(name)
    times = [[curve.reaches(share) for share in shares] for curve in of]
    values = np.array(times, dtype=float) / divisor  # (runs, POINTS), NaN where never reached
    for run in values:
        axes.plot(100 * shares, run, color=look.color, lw=0.5, alpha=0.5)
    axes.plot(
        100 * shares,
        values.mean(0),
        color=look.color,
        ls=look.line,
        marker=look.marker,
        markevery=29,
    )
