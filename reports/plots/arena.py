"""Figures of the arena: algorithms compared with policy gradient (PG), and the effect of H.

`reports.outcomes` describes the arena and its fields. The effect of H (optimizer steps per
inference batch) is drawn at each N_step (completions per optimizer step).
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from rapid.algorithms import PG, RAPID
from rapid.config.arena import ArenaMap
from reports import labels
from reports.outcomes import METRIC, FieldOutcomes, list_fields
from reports.plots import has_curves, style
from reports.plots.studies import build_curves_figure
from reports.plots.style import Figure
from reports.report_data import ReportData
from reports.statistics.estimates import Estimate
from reports.tables.maps import Change, MapCell, compute_gain, compute_saving, select_map_runs
from reports.tables.standings import (
    estimate_time_ratio,
    format_target_accuracy,
    rank_algorithms,
)
from reports.tables.study_runs import StudyRuns

# Ratios of an algorithm's time to PG's at the edges of the panel. A ratio beyond an edge is drawn
# at the edge.
EDGES = 1 / 8, 8.0
REFERENCE = labels.algorithm(PG.name)


def build_figures(data: ReportData) -> dict[str, Figure]:
    """Return the figures by name, see `reports.plots.list_arena_figures`."""
    if data.params.arena.tuning:
        return {}
    figures = {}
    for outcomes in list_fields(data):
        name = f"arena-{outcomes.benchmark}"
        figures[name] = _build_comparison_figure(outcomes)
        if has_curves(outcomes.field):
            figures[f"{name}-curves"] = build_curves_figure(_build_study(outcomes))
    if data.params.arena.planned_maps:
        figures["arena-map"] = _build_map_figure(data)
    return figures


def _build_study(outcomes: FieldOutcomes) -> StudyRuns:
    """Return the runs of a field as a study, from which `build_curves_figure` makes a figure."""
    data, field = outcomes.data, outcomes.field
    names, seeds = [*map(field.run_name, field.rates)], sorted(set(data.frame.seed))
    runs = data.select_runs(outcomes.benchmark, names, seeds)
    start = data.params.training.start
    untrained = outcomes.select_runs(start)
    return StudyRuns(outcomes.benchmark, runs, start, untrained, METRIC, data.root)


# All algorithms compared with PG ------------------------------------------------------------------


def _build_comparison_figure(outcomes: FieldOutcomes) -> Figure:
    target, field = format_target_accuracy(outcomes), outcomes.field
    runs = [outcomes.select_runs(field.run_name(name)) for name in field.rates]
    return Figure(
        title=f"{outcomes.label}: time until {target} % accuracy, and accuracy",
        caption=(
            f"Left: training time until {target} % accuracy, divided by {REFERENCE}'s, paired by "
            "seed, with 95 % confidence intervals; further left is faster. If the interval of "
            "Wilcoxon's test ends at 0 or infinity, it is the median ratio with that of a sign "
            "test. Right: accuracy after "
            f"equally many completions minus {REFERENCE}'s; the grey band is the margin of "
            "equivalence. RAPID is red. A triangle at an edge stands for a value beyond it, or for "
            "runs that never reach this accuracy. A marker is missing if fewer than two seeds can "
            "be compared, or if no run of the two algorithms reaches this accuracy (left), or all "
            "their scores are equal (right)."
        ),
        draw=lambda width: _draw_comparison(outcomes, width),
        problems=[outcomes.data.problems[outcomes.benchmark]],
        missing=[
            f"{labels.algorithm(name)}: no accuracy curve of {missing} of {len(outcome.runs)} runs"
            for name, outcome in outcomes.outcomes.items()
            if (missing := len(outcome.runs) - len(outcome.seconds))
        ],
        sources=[f"{folder}/evaluation.json" for part in runs for folder in part.evaluation],
    )


def _draw_comparison(outcomes: FieldOutcomes, width: float):
    names = rank_algorithms(outcomes)
    canvas, ((left, right),) = style.create_canvas(width, 0.9, columns=2, sharey=True)
    lines = style.name_rows(left, [labels.algorithm(name) for name in names])
    # A row gets room for 1.4 lines, and for half of each further line of the longest name, because
    # most names need one line.
    style.make_room_for_lines(canvas, len(names) * (0.9 + lines / 2))
    for row, name in enumerate(names):
        color = style.RED if RAPID.matches_name(name) else style.BLUE
        if name == PG.name:
            color = style.BLACK
        _draw_interval(left, row, estimate_time_ratio(outcomes, name), color, EDGES)
        _draw_interval(right, row, outcomes.compare(name, PG.name, "accuracy"), color, scale=100)
    left.set(xscale="log", xlim=EDGES, xlabel=f"time divided by {REFERENCE}'s")
    ticks = [0.125, 0.25, 0.5, 1, 2, 4, 8]
    left.set_xticks(ticks, [f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}" for tick in ticks])
    left.minorticks_off()
    right.set_xlabel(f"points minus {REFERENCE}'s")
    margin = 100 * outcomes.data.params.arena.margin
    right.axvspan(-margin, margin, color="#EDEDED", zorder=0)
    left.axvline(1, color="black", lw=0.8)
    right.axvline(0, color="black", lw=0.8)
    return canvas


def _draw_interval(
    axes,
    row: int,
    estimate: Estimate,
    color: str,
    edges: tuple[float, float] = (-np.inf, np.inf),
    scale: float = 1,
) -> None:
    """Draw an estimate with its interval in a row of a panel.

    An interval is cut off at the edges, and a value beyond them is drawn as a triangle.
    """
    if estimate.value is None:
        return
    if estimate.low is not None:
        ends = np.clip([scale * estimate.low, scale * estimate.high], *edges)
        axes.plot(ends, [row, row], color=color, lw=1)
    value = np.clip(scale * estimate.value, *edges)
    marker = dict(zip(edges, "<>", strict=True)).get(value, "o")
    axes.plot([value], [row], marker, color=color, ms=3.5, clip_on=False)


# The map ------------------------------------------------------------------------------------------


def _build_map_figure(data: ReportData) -> Figure:
    maps = data.params.arena.maps
    runs_by_benchmark = {
        benchmark: select_map_runs(data, benchmark, grid) for benchmark, grid in maps.items()
    }
    return Figure(
        title="Effect of H at each N_step",
        caption=(
            "RAPID at each H (optimizer steps per inference batch) compared with RAPID at the "
            "first H and the same N_step (completions per optimizer step). Above: share of "
            "training time saved. Below: accuracy gained, in percentage points, ± half the width "
            "of the 95 % confidence interval. Means over seeds; blue favours the larger H."
        ),
        draw=lambda width: _draw_map(maps, runs_by_benchmark, data.label_benchmark, width),
        problems=[data.problems[name] for name in maps],
        missing=[
            f"{data.label_benchmark(benchmark)}, N_step = {n_step}, H = {h}: no runs"
            for benchmark, runs_by_cell in runs_by_benchmark.items()
            for (n_step, h), runs in runs_by_cell.items()
            if runs.dropna(subset=["runtime", METRIC]).empty
        ],
        sources=[
            f"{folder}/summary.json"
            for runs_by_cell in runs_by_benchmark.values()
            for runs in runs_by_cell.values()
            for folder in runs.folder
        ],
        wide=len(maps) > 1,
    )


def _draw_map(
    maps: dict[str, ArenaMap],
    runs_by_benchmark: dict[str, dict[MapCell, pd.DataFrame]],
    label_benchmark: Callable[[str], str],
    width: float,
):
    canvas, (above, below) = style.create_canvas(width, 4.2, rows=2, columns=len(maps))
    for column, (benchmark, grid) in enumerate(maps.items()):
        runs_by_cell = runs_by_benchmark[benchmark]
        for axes, compute_change, limit in (
            (above[column], compute_saving, 0.8), (below[column], compute_gain, 0.1),
        ):  # fmt: skip
            changes = {
                (n_step, h): compute_change(runs, runs_by_cell[n_step, grid.H[0]])
                for (n_step, h), runs in runs_by_cell.items()
            }
            _draw_heat_map(axes, grid, changes, limit)
        style.set_title(above[column], label_benchmark(benchmark))
        below[column].set_xlabel("H")
    above[0].set_ylabel("time saved\nN_step")
    below[0].set_ylabel("points gained\nN_step")
    return canvas


def _draw_heat_map(
    axes, grid: ArenaMap, changes: dict[MapCell, Change | None], limit: float
) -> None:
    """Draw the change at each (N_step, H); colours do not change beyond the limit.

    The first H, with which the others are compared, has no interval.
    """
    values = [[(changes[n, h] or (np.nan,))[0] for h in grid.H] for n in grid.n_step]
    axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for row, n_step in enumerate(grid.n_step):
        for column, h in enumerate(grid.H):
            value, text, half_width = changes[n_step, h] or (0, "\N{EM DASH}", "")
            if half_width and column:
                text += f"\n± {half_width}"
            color = "white" if abs(value) > 0.7 * limit else "black"
            axes.text(
                column, row, text, ha="center", va="center", color=color,
                fontproperties=style.get_note_font(),
            )  # fmt: skip
    axes.set_xticks(range(len(grid.H)), grid.H)
    axes.set_yticks(range(len(grid.n_step)), grid.n_step)
    axes.grid(False)
