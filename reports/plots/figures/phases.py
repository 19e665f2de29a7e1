"""The paper's Figure 1: where the time goes, naive GRPO beside RAPID."""

import pandas as pd
from matplotlib.axes import Axes

from reports import labels, paper
from reports.measured import Contest, Measured
from reports.plots import style
from reports.plots.panels import Series, panel_figure
from reports.plots.style import Figure

# Segment -> phases of summary.json, colour, hatch
SEGMENTS = {
    "sampling": (["sampling"], style.BLUE, ""),
    "grading": (["grading"], style.SKY, "////"),
    "backpropagation": (["backpropagation"], style.ORANGE, "xxxx"),
    "rest": (["sync", "other"], "#D0D0D0", "...."),
}


def figure(measured: Measured) -> Figure:
    """Return a panel for each benchmark, with a bar for naive GRPO and for each RAPID."""
    return panel_figure(
        measured,
        _draw_bars,
        series=[
            Series(f"{labels.algorithm(name)} on {contest.label}", contest.of(name), ["runtime"])
            for contest in measured.contests.values()
            for name in _algorithms(contest)
        ],
        title="Where the time goes: naive GRPO and RAPID",
        caption="Seconds of the training loop in inference (sampling, grading), "
        "backpropagation and the rest (weight synchronization and what remains), "
        "means over seeds; whiskers are one standard deviation of the total. The "
        "paper's Figure 1.",
    )


def _algorithms(contest: Contest) -> list[str]:
    return [*(name for name in contest.algorithms if name == paper.NAIVE), *contest.rapids]


def mean_segments(runs: pd.DataFrame) -> dict[str, float] | None:
    """Return mean seconds of each segment over the runs; `None` without a run that has them all."""
    columns = [f"runtime.{phase}" for phases, *_ in SEGMENTS.values() for phase in phases]
    complete_runs = runs.dropna(subset=["runtime", *columns])
    if complete_runs.empty:
        return None
    return {
        name: float(sum(complete_runs[f"runtime.{phase}"] for phase in phases).mean())
        for name, (phases, *_) in SEGMENTS.items()
    }


def _draw_bars(axes: Axes, contest: Contest) -> None:
    names = _algorithms(contest)
    seconds = {name: parts for name in names if (parts := mean_segments(contest.of(name)))}
    if not seconds:
        style.draw_empty(axes)
        return
    divisor, unit = style.choose_time_unit(max(sum(parts.values()) for parts in seconds.values()))
    for position, name in enumerate(names):
        if name not in seconds:
            axes.text(position, 0, "no runs", rotation=90, ha="center", va="bottom")
            continue
        bottom = 0.0
        for segment, (_, color, hatch) in SEGMENTS.items():
            height = seconds[name][segment] / divisor
            axes.bar(
                position, height, bottom=bottom, width=0.72, color=color, hatch=hatch,
                edgecolor="black", linewidth=0.6, label=segment,
            )  # fmt: skip
            bottom += height
        if pd.notna(deviation := contest.of(name).runtime.std()):
            axes.errorbar(position, bottom, deviation / divisor, color="black", capsize=2, lw=0.8)
    ticks = [
        labels.algorithm(name).replace(" ", "\n") if name == paper.NAIVE else labels.ratio(name)
        for name in names
    ]
    axes.set_xticks(range(len(names)), ticks)
    axes.grid(False, axis="x")
    axes.set_ylabel(unit)
