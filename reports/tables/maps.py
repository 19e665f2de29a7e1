"""The table of the effect of H (optimizer steps per inference batch) at each N_step.

RAPID at each H is compared with RAPID at the first H of the map and the same N_step (completions
per optimizer step). The figure of the map (`reports.plots.arena`) shows the same values.
"""

from itertools import product

import pandas as pd

from rapid.config.arena import ArenaMap, list_seeds
from reports import formats
from reports.outcomes import METRIC
from reports.report_data import ReportData
from reports.statistics import pairs
from reports.tables.intervals import NO_PAIR, NO_RUNTIME_PAIR
from reports.tables.layout import build_table, single_group
from reports.tables.table import MISSING, Cell, Table

MapCell = tuple[int, int]  # N_step and H
# A value, the value as text, and half the width of its interval as text ("" for none).
Change = tuple[float, str, str]


def select_map_runs(
    data: ReportData, benchmark: str, arena_map: ArenaMap
) -> dict[MapCell, pd.DataFrame]:
    """Return the runs of each cell of a benchmark's map."""
    seeds = list_seeds(arena_map.seeds)
    return {
        (n_step, h): data.select_runs(benchmark, [arena_map.run_name(n_step, h)], seeds).frame
        for n_step, h in product(arena_map.n_step, arena_map.H)
    }


def build_map_tables(data: ReportData, first_number: int) -> list[Table]:
    """Return the table of each benchmark that has a map."""
    return [
        _build_map_table(data, benchmark, arena_map, number)
        for number, (benchmark, arena_map) in enumerate(
            data.params.arena.planned_maps.items(), first_number
        )
    ]


def _build_map_table(data: ReportData, benchmark: str, arena_map: ArenaMap, number: int) -> Table:
    runs_by_cell, first_h = select_map_runs(data, benchmark, arena_map), arena_map.H[0]
    rows = [
        (f"N_step = {n_step}, H = {h}", (runs, runs_by_cell[n_step, first_h]))
        for (n_step, h), runs in runs_by_cell.items()
        if h != first_h
    ]
    columns = {
        "Time saved": lambda runs: _build_cell(compute_saving(*runs), NO_RUNTIME_PAIR),
        "Points gained": lambda runs: _build_cell(compute_gain(*runs), NO_PAIR),
    }
    return build_table(
        "arena-map",
        data,
        [rows],
        single_group(columns),
        [benchmark],
        number,
        first_h=first_h,
        seeds=len(list_seeds(arena_map.seeds)),
    )


def _build_cell(change: Change | None, missing_reason: str) -> Cell:
    if change is None:
        return Cell(MISSING, reason=missing_reason)
    _, text, half_width = change
    return Cell(text, deviation=half_width)


def compute_saving(runs: pd.DataFrame, reference: pd.DataFrame) -> Change | None:
    """Return the share of time that runs save, without an interval; None if no seed is in both."""
    ratio = pairs.estimate_ratio(runs, reference, "runtime")
    if ratio is None:
        return None
    return 1 - ratio.value, f"{round(100 * (1 - ratio.value))}%".replace("-", formats.MINUS), ""


def compute_gain(runs: pd.DataFrame, reference: pd.DataFrame) -> Change | None:
    """Return the accuracy that runs gain, in percentage points; None if no seed is in both."""
    gain = pairs.estimate_difference(runs, reference, METRIC)
    if gain is None:
        return None
    half_width = "" if gain.low is None else f"{100 * (gain.high - gain.low) / 2:.1f}"
    return gain.value, formats.points(gain.value), half_width
