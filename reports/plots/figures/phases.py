"""The paper's Figure 1: training time by phase, of naive GRPO and RAPID.

Naive GRPO samples as few completions at a time as it trains on. RAPID takes H optimizer steps per
inference batch.
"""

import pandas as pd
from matplotlib.axes import Axes

from reports import formats, labels, paper
from reports.plots import style
from reports.plots.panels import Series, panel_figure
from reports.plots.style import Figure, LegendEntries
from reports.report_data import BenchmarkRuns, ReportData

MAX_ROWS = 12  # bars that fit into a panel of the usual height
# Segment of a bar -> its phases in summary.json, colour and hatch.
SEGMENTS = {
    "sampling": (["sampling"], style.BLUE, ""),
    "grading": (["grading"], style.SKY, "////"),
    "backpropagation": (["backpropagation"], style.ORANGE, "xxxx"),
    "rest": (["sync", "other"], "#D0D0D0", "...."),
}


def figure(data: ReportData) -> Figure:
    """Return a panel for each benchmark, with bars for naive GRPO and for RAPID at each H."""
    row_count = max(map(len, map(_list_algorithms, data.runs_by_benchmark.values())), default=0)
    return panel_figure(
        data,
        _draw_bars,
        series=[
            Series(
                f"{labels.algorithm(name)} on {benchmark_runs.label}",
                benchmark_runs.select(name),
                ["runtime"],
            )
            for benchmark_runs in data.runs_by_benchmark.values()
            for name in _list_algorithms(benchmark_runs)
        ],
        share_y=True,
        height=style.HEIGHT + style.MIN_ROW_HEIGHT * max(0, row_count - MAX_ROWS),
        title="Training time by phase: naive GRPO and RAPID",
        caption="Time of the training loop in inference (sampling, grading), backpropagation "
        "and the rest (weight synchronization and all other work), means over seeds; whiskers are "
        "one standard deviation of the total. The paper's Figure 1.",
    )


def _list_algorithms(benchmark_runs: BenchmarkRuns) -> list[str]:
    return [
        *(name for name in benchmark_runs.algorithms if name == paper.NAIVE),
        *benchmark_runs.rapid_algorithms,
    ]


def mean_segments(runs: pd.DataFrame) -> dict[str, float] | None:
    """Return the mean seconds of each segment over runs that have all phases; None if none has."""
    columns = [f"runtime.{phase}" for phases, *_ in SEGMENTS.values() for phase in phases]
    complete_runs = runs.dropna(subset=["runtime", *columns])
    if complete_runs.empty:
        return None
    return {
        name: float(sum(complete_runs[f"runtime.{phase}"] for phase in phases).mean())
        for name, (phases, *_) in SEGMENTS.items()
    }


def _draw_bars(axes: Axes, benchmark_runs: BenchmarkRuns) -> LegendEntries:
    names = _list_algorithms(benchmark_runs)
    seconds = {
        name: parts for name in names if (parts := mean_segments(benchmark_runs.select(name)))
    }
    if not seconds:
        return style.draw_empty(axes)
    unit, unit_seconds = formats.choose_time_unit(
        max(sum(parts.values()) for parts in seconds.values())
    )
    entries: LegendEntries = {}
    for row, name in enumerate(names):
        if name not in seconds:
            axes.text(0, row, " no data", va="center")
            continue
        left = 0.0
        for segment, (_, color, hatch) in SEGMENTS.items():
            width = seconds[name][segment] / unit_seconds
            entries[segment] = axes.barh(
                row, width, left=left, height=0.72, color=color, hatch=hatch, edgecolor="black",
                linewidth=0.6,
            )  # fmt: skip
            left += width
        if pd.notna(deviation := benchmark_runs.select(name).runtime.std()):
            axes.errorbar(
                left, row, xerr=deviation / unit_seconds, color="black", capsize=2, lw=0.8
            )
    style.name_rows(
        axes, [labels.algorithm(n) if n == paper.NAIVE else labels.h_label(n) for n in names]
    )
    axes.grid(False, axis="y")
    axes.set_xlabel(f"training time ({unit})")
    axes.set_xlim(left=0)
    return entries
