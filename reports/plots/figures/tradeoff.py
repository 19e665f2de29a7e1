"""Accuracy against the time of training, a point for each algorithm."""

import pandas as pd

from rapid.config.specs import BASE
from reports import labels
from reports.measured import Contest, Measured
from reports.plots import style
from reports.plots.style import Figure
from reports.statistics import pairs
from reports.tables.columns import accuracy, gaps


def figure(measured: Measured) -> Figure:
    """Return a panel for each benchmark, with a point for each algorithm."""
    contests = measured.contests.values()
    metrics = {name: accuracy(measured.params, name)[0].metric for name in measured.contests}
    return Figure(
        title="Accuracy against training time",
        caption=(
            "Large markers are means over seeds with the 95 % interval of accuracy and the range "
            "of times; small ones are single runs. The dashed line is the model before training. "
            "Up and to the left is better; SFT's time leaves out the teacher's sampling."
        ),
        draw=lambda: _draw(measured, metrics),
        problems=[*measured.problems.values()],
        missing=[
            f"{labels.algorithm(name)} on {contest.label}: {why}"
            for contest in contests
            for name in contest.algorithms
            if (why := gaps(contest.of(name), [metrics[contest.benchmark], *_time(name)]))
        ],
        sources=[
            path
            for contest in contests
            for path in (
                *(f"{folder}/summary.json" for folder in _trained(contest).folder),
                *(f"{folder}/evaluation.json" for folder in contest.runs.evaluation),
            )
        ],
    )


def _time(algorithm: str) -> list[str]:
    return [] if algorithm == BASE else ["runtime"]


def _trained(contest: Contest):
    return contest.runs[contest.runs.algorithm != BASE]


def _draw(measured: Measured, metrics: dict[str, str]):
    canvas, (row,) = style.panels([contest.label for contest in measured.contests.values()])
    for axes, contest in zip(row, measured.contests.values(), strict=True):
        _points(axes, contest, metrics[contest.benchmark])
    style.legend(canvas, row, columns=5)
    return canvas


def _points(axes, contest: Contest, metric: str) -> None:
    done = _trained(contest).dropna(subset=["runtime", metric])
    if done.empty:
        style.empty(axes)
        return
    divisor, unit = style.unit(done.runtime.max())
    if pd.notna(base := contest.of(BASE)[metric].mean()):
        axes.axhline(100 * base, color="black", lw=0.8, ls=(0, (6, 3)), label="Base")
    for name in contest.algorithms:
        runs = done[done.algorithm == name]
        if runs.empty:
            continue
        look = style.look(name)
        times, shares = runs.runtime / divisor, 100 * runs[metric]
        axes.plot(times, shares, look.marker, color=look.color, ms=2.5, alpha=0.5, ls="")
        x, y = times.mean(), shares.mean()
        # matplotlib refuses lengths below 0, which rounding makes of 0.
        known = pairs.accuracy(runs, metric)
        ends = known and [[max(0.0, y - 100 * known.low)], [max(0.0, 100 * known.high - y)]]
        axes.errorbar(
            x, y, ends, [[x - times.min()], [times.max() - x]], fmt=look.marker, color=look.color,
            markeredgecolor="black", markeredgewidth=0.5, ms=6, lw=0.8,
            label=labels.algorithm(name),
        )  # fmt: skip
    axes.set_xlabel(unit)
    axes.set_xlim(left=0)
    axes.set_ylabel(f"{metric.capitalize()} (%)")
