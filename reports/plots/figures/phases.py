"""The paper's Figure 1: where the time goes, naive GRPO beside RAPID."""

import pandas as pd

from reports import labels, paper
from reports.measured import Contest, Measured
from reports.plots import style
from reports.plots.style import Figure
from reports.tables.columns import gaps

# Segment -> phases of summary.json, colour, hatch
SEGMENTS = {
    "sampling": (["sampling"], style.BLUE, ""),
    "grading": (["grading"], style.SKY, "////"),
    "backpropagation": (["backpropagation"], style.ORANGE, "xxxx"),
    "rest": (["sync", "other"], "#D0D0D0", "...."),
}


def figure(measured: Measured) -> Figure:
    """Return a panel for each benchmark, with a bar for naive GRPO and for each RAPID."""
    bars = [(contest, name) for contest in measured.contests.values() for name in _shown(contest)]
    return Figure(
        title="Where the time goes: naive GRPO and RAPID",
        caption=(
            "Seconds of the training loop in inference (sampling, grading), backpropagation and "
            "the rest (weight synchronization, what remains), means over seeds; whiskers are one "
            "standard deviation of the whole. The paper's Figure 1."
        ),
        draw=lambda: _draw(measured),
        problems=[*measured.problems.values()],
        missing=[
            f"{labels.algorithm(name)} on {contest.label}: {why}"
            for contest, name in bars
            if (why := gaps(contest.of(name), ["runtime"]))
        ],
        sources=[
            f"{folder}/summary.json" for contest, name in bars for folder in contest.of(name).folder
        ],
    )


def _shown(contest: Contest) -> list[str]:
    naive = [name for name in contest.algorithms if name == paper.NAIVE]
    return [*naive, *contest.rapids]


def segments(runs: pd.DataFrame) -> dict[str, float] | None:
    """Return mean seconds of each segment over the runs; `None` without a run that has them all."""
    columns = [f"runtime.{phase}" for phases, *_ in SEGMENTS.values() for phase in phases]
    done = runs.dropna(subset=["runtime", *columns])
    if done.empty:
        return None
    return {
        name: float(sum(done[f"runtime.{phase}"] for phase in phases).mean())
        for name, (phases, *_) in SEGMENTS.items()
    }


def _draw(measured: Measured):
    canvas, (row,) = style.panels([contest.label for contest in measured.contests.values()])
    for axes, contest in zip(row, measured.contests.values(), strict=True):
        _bars(axes, contest, _shown(contest))
    style.legend(canvas, row)
    return canvas


def _bars(axes, contest: Contest, names: list[str]) -> None:
    found = {name: segments(contest.of(name)) for name in names}
    known = {name: parts for name, parts in found.items() if parts}
    if not known:
        style.empty(axes)
        return
    divisor, unit = style.unit(max(sum(parts.values()) for parts in known.values()))
    for position, name in enumerate(names):
        if name not in known:
            axes.text(position, 0, "no runs", rotation=90, ha="center", va="bottom")
            continue
        bottom = 0.0
        for segment, (_, color, hatch) in SEGMENTS.items():
            height = known[name][segment] / divisor
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
