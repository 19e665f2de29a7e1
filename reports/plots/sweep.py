"""RAPID by H: completion length, inference time and the share of clipped weights."""

from dataclasses import dataclass

import pandas as pd

from rapid.config.params import Params
from reports import notes
from reports.cells import gaps
from reports.plots import style
from reports.plots.style import Figure


@dataclass(frozen=True)
class Quantity:
    """A column of the data frame; `scale` turns it into the unit that is shown."""

    column: str
    label: str
    scale: float = 1.0
    seconds: bool = False


LENGTH = Quantity("completion_length", "completion length (tokens)")
TIME = Quantity("runtime.sampling", "inference time", seconds=True)
CLIPPED = Quantity("clip_fraction", "clipped weights (%)", scale=100)


def figures(params: Params, frame: pd.DataFrame) -> list[Figure]:
    runs = {name: runs_of(params, frame, name) for name in params.benchmarks}
    return [
        _figure(
            "length-and-time",
            "Completion length and inference time by H",
            "Mean tokens of the completions of a training run, and its time of sampling. Points are "
            "runs, lines are means over seeds. The paper's figures of both are for MATH.",
            runs,
            [LENGTH, TIME],
        ),
        _figure(
            "clipped",
            "Clipped importance weights by H",
            "Share of a run's importance weights above eta, over the completions that enter the "
            "gradient. Points are runs, the line is the mean over seeds.",
            runs,
            [CLIPPED],
        ),
    ]


def runs_of(params: Params, frame: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    spec = params.tables.main
    chosen = (frame.benchmark == benchmark) & (frame.model == spec.model)
    return frame[chosen & frame.H.isin(params.tables.staleness.H) & frame.seed.isin(spec.seeds)]


def _figure(
    name: str, title: str, caption: str, runs: dict[str, pd.DataFrame], quantities: list[Quantity]
) -> Figure:
    return Figure(
        name=name,
        title=title,
        caption=caption,
        draw=lambda: _draw(runs, quantities),
        missing=[
            f"{notes.benchmark(benchmark)}, {quantity.label}: {why}"
            for benchmark, part in runs.items()
            for quantity in quantities
            if (why := gaps(part, [quantity.column]))
        ],
        sources=[path for part in runs.values() for path in part.summary_path],
    )


def _draw(runs: dict[str, pd.DataFrame], quantities: list[Quantity]):
    canvas, rows = style.panels(len(runs), len(quantities))
    for row, quantity in zip(rows, quantities, strict=True):
        for axes, (benchmark, part) in zip(row, runs.items(), strict=True):
            style.title(axes, benchmark)
            _panel(axes, part, quantity)
    return canvas


def _panel(axes, runs: pd.DataFrame, quantity: Quantity) -> None:
    done = runs.dropna(subset=[quantity.column])
    if done.empty:
        style.empty(axes)
        return
    scale, label = quantity.scale, quantity.label
    if quantity.seconds:
        divisor, unit = style.unit(done[quantity.column].max())
        scale, label = 1 / divisor, f"{label} ({unit})"
    values = scale * done[quantity.column]
    means = values.groupby(done.H).mean()
    axes.plot(means.index, means, "-o", color=style.BLUE, markeredgecolor="black", mew=0.5)
    axes.plot(done.H, values, "x", color=style.RED, ms=4)
    axes.set_xscale("log", base=2)
    ticks = sorted(done.H.unique())
    axes.set_xticks(ticks, [f"{h:.0f}" for h in ticks])
    axes.minorticks_off()
    axes.set_xlabel("H")
    axes.set_ylabel(label)
    axes.set_ylim(0, max(1.12 * values.max(), 1e-3))
