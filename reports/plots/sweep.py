"""What changes with RAPID's H: a row of panels for each quantity, points by H."""

from dataclasses import dataclass

import pandas as pd

from reports.measured import Measured
from reports.plots import style
from reports.plots.style import Figure
from reports.tables.columns import gaps


@dataclass(frozen=True)
class Quantity:
    """A metric; `scale` turns it into the unit that is shown."""

    metric: str
    label: str
    scale: float = 1.0
    seconds: bool = False


def figure(measured: Measured, quantities: list[Quantity], title: str, caption: str) -> Figure:
    """Return the figure of these quantities over the runs of Table 3."""
    runs = {measured.label(name): part for name, part in measured.sweeps.items()}
    return Figure(
        title=title,
        caption=caption,
        draw=lambda: _draw(runs, quantities),
        problems=[*measured.problems.values()],
        missing=[
            f"{label}, {quantity.label}: {why}"
            for label, part in runs.items()
            for quantity in quantities
            if (why := gaps(part, [quantity.metric]))
        ],
        sources=[f"{folder}/summary.json" for part in runs.values() for folder in part.folder],
    )


def _draw(runs: dict[str, pd.DataFrame], quantities: list[Quantity]):
    canvas, rows = style.panels(list(runs), len(quantities))
    for row, quantity in zip(rows, quantities, strict=True):
        for axes, part in zip(row, runs.values(), strict=True):
            _panel(axes, part, quantity)
    return canvas


def _panel(axes, runs: pd.DataFrame, quantity: Quantity) -> None:
    done = runs.dropna(subset=[quantity.metric])
    if done.empty:
        style.empty(axes)
        return
    scale, label = quantity.scale, quantity.label
    if quantity.seconds:
        divisor, unit = style.unit(done[quantity.metric].max())
        scale, label = 1 / divisor, f"{label} ({unit})"
    values = scale * done[quantity.metric]
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
