"""The paper's Figure 1: where the time goes, naive GRPO beside RAPID."""

import pandas as pd

from rapid.config.params import Params
from reports import notes, paper
from reports.cells import gaps
from reports.compare import Field
from reports.evidence import field_of
from reports.plots import style
from reports.plots.style import Figure
from reports.statistics import spread

# Segment -> phases of summary.json, colour, hatch
SEGMENTS = {
    "sampling": (["sampling"], style.BLUE, ""),
    "grading": (["grading"], style.SKY, "////"),
    "backpropagation": (["backpropagation"], style.ORANGE, "xxxx"),
    "rest": (["sync", "other"], "#D0D0D0", "...."),
}


def figure(params: Params, frame: pd.DataFrame) -> Figure:
    fields = {name: field_of(params, frame, name) for name in params.benchmarks}
    shown = {name: _shown(field) for name, field in fields.items()}
    return Figure(
        name="phases",
        title="Where the time goes: naive GRPO and RAPID",
        caption=(
            "Seconds of the training loop in inference (sampling, grading), backpropagation and the "
            "rest (weight synchronization, what remains), means over seeds; whiskers are one standard "
            "deviation of the whole. The paper's Figure 1."
        ),
        draw=lambda: _draw(fields, shown),
        missing=[
            f"{notes.algorithm(name)} on {notes.benchmark(benchmark)}: {why}"
            for benchmark, field in fields.items()
            for name in shown[benchmark]
            if (why := gaps(field.of(name), ["runtime"]))
        ],
        sources=[
            path
            for benchmark, field in fields.items()
            for name in shown[benchmark]
            for path in field.of(name).summary_path
        ],
    )


def _shown(field: Field) -> list[str]:
    naive = [name for name in field.algorithms if name == paper.NAIVE]
    return [*naive, *field.rapids]


def segments(runs: pd.DataFrame) -> dict[str, float] | None:
    """Mean seconds of each segment over the runs; `None` without a run that has them all."""
    columns = [f"runtime.{phase}" for phases, *_ in SEGMENTS.values() for phase in phases]
    done = runs.dropna(subset=["runtime", *columns])
    if done.empty:
        return None
    return {
        name: float(sum(done[f"runtime.{phase}"] for phase in phases).mean())
        for name, (phases, *_) in SEGMENTS.items()
    }


def _draw(fields: dict[str, Field], shown: dict[str, list[str]]):
    canvas, (row,) = style.panels(len(fields))
    for axes, (benchmark, field) in zip(row, fields.items(), strict=True):
        style.title(axes, benchmark)
        _bars(axes, field, shown[benchmark])
    style.legend(canvas, row)
    return canvas


def _bars(axes, field: Field, names: list[str]) -> None:
    found = {name: segments(field.of(name)) for name in names}
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
                position,
                height,
                bottom=bottom,
                width=0.72,
                color=color,
                hatch=hatch,
                edgecolor="black",
                linewidth=0.6,
                label=segment,
            )
            bottom += height
        deviation = spread(field.of(name).runtime).deviation
        if deviation is not None:
            axes.errorbar(position, bottom, deviation / divisor, color="black", capsize=2, lw=0.8)
    labels = [
        notes.algorithm(name).replace(" ", "\n")
        if name == paper.NAIVE
        else f"H={paper.ratio(name)}"
        for name in names
    ]
    axes.set_xticks(range(len(names)), labels)
    axes.grid(False, axis="x")
    axes.set_ylabel(unit)
