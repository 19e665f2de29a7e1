"""Accuracy against the time of training, an algorithm a point."""

import pandas as pd

from rapid.config.params import Params
from rapid.config.specs import BASE
from reports import compare, notes
from reports.cells import gaps
from reports.compare import Field
from reports.evidence import field_of
from reports.plots import style
from reports.plots.style import Figure
from reports.statistics import spread


def figure(params: Params, frame: pd.DataFrame) -> Figure:
    fields = {name: field_of(params, frame, name) for name in params.benchmarks}
    metrics = {name: f"pass@{params.benchmarks[name].pass_at[0]}" for name in fields}
    return Figure(
        name="tradeoff",
        title="Accuracy against training time",
        caption=(
            "Large markers are means over seeds with the 95 % interval of accuracy and the range of "
            "times; small ones are single runs. The dashed line is the model before training. Up and "
            "to the left is better; SFT's time leaves out the teacher's sampling."
        ),
        draw=lambda: _draw(fields, metrics),
        missing=[
            f"{notes.algorithm(name)} on {notes.benchmark(benchmark)}: {why}"
            for benchmark, field in fields.items()
            for name in field.algorithms
            if (why := gaps(field.of(name), [metrics[benchmark], *_time(name)]))
        ],
        sources=[
            path
            for field in fields.values()
            for column in ("summary_path", "evaluation_path")
            for path in (field.runs if column[0] == "e" else _trained(field))[column]
        ],
    )


def _time(algorithm: str) -> list[str]:
    return [] if algorithm == BASE else ["runtime"]


def _trained(field: Field) -> pd.DataFrame:
    return field.runs[field.runs.algorithm != BASE]


def _draw(fields: dict[str, Field], metrics: dict[str, str]):
    canvas, (row,) = style.panels(len(fields))
    for axes, (benchmark, field) in zip(row, fields.items(), strict=True):
        style.title(axes, benchmark)
        _points(axes, field, metrics[benchmark])
    style.legend(canvas, row, columns=5)
    return canvas


def _points(axes, field: Field, metric: str) -> None:
    done = _trained(field).dropna(subset=["runtime", metric])
    if done.empty:
        style.empty(axes)
        return
    divisor, unit = style.unit(done.runtime.max())
    base = spread(field.of(BASE)[metric]).mean
    if base is not None:
        axes.axhline(100 * base, color="black", lw=0.8, ls=(0, (6, 3)), label="Base")
    for name in field.algorithms:
        runs = done[done.algorithm == name]
        if runs.empty:
            continue
        look = style.look(name)
        times, shares = runs.runtime / divisor, 100 * runs[metric]
        axes.plot(times, shares, look.marker, color=look.color, ms=2.5, alpha=0.5, ls="")
        x, y = times.mean(), shares.mean()
        known = compare.accuracy(runs, metric)
        error = [[y - 100 * known.low], [100 * known.high - y]] if known else None
        axes.errorbar(
            x,
            y,
            yerror(error),
            [[x - times.min()], [times.max() - x]],
            fmt=look.marker,
            color=look.color,
            markeredgecolor="black",
            markeredgewidth=0.5,
            ms=6,
            lw=0.8,
            label=notes.algorithm(name),
        )
    axes.set_xlabel(unit)
    axes.set_xlim(left=0)
    axes.set_ylabel(f"{metric.capitalize()} (%)")


def yerror(error):
    """matplotlib refuses lengths below 0, which rounding makes of 0."""
    return None if error is None else [[max(0.0, side[0])] for side in error]
