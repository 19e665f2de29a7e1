"""The table of training time by phase, which also predicts the times on other machines.

A run spends its time on sampling and on the rest: grading, backpropagation, copying weights. A
larger H (optimizer steps per inference batch) mainly shortens sampling, because more completions
are sampled at once. These runs show by which factor an algorithm changes the sampling time of PG
(policy gradient, the baseline), and by which factor the rest of PG's time. The prediction for a
machine on which sampling takes another share of PG's time assumes the same two factors there.
"""

from collections.abc import Callable
from functools import partial

import pandas as pd

from rapid.algorithms import PG
from rapid.artifacts.runs import PHASES
from reports import formats, labels
from reports.outcomes import FieldOutcomes
from reports.tables.intervals import NO_RUNTIME_PAIR
from reports.tables.layout import build_table, single_group
from reports.tables.notes import collect_run_facts
from reports.tables.standings import rank_algorithms
from reports.tables.table import MISSING, Cell, Table

SAMPLING, TOTAL = "runtime.sampling", "runtime"
SHARES = (0.25, 0.5, 0.75, 0.9)  # shares of sampling in PG's time on other machines


def build_phases_table(outcomes: FieldOutcomes, number: int) -> Table:
    """Return the table of the algorithms that were run, in the order of `rank_algorithms`.

    `number` is the number of the table in the report.
    """
    names = outcomes.data.params.arena.list_algorithms(outcomes.field)
    columns: dict[str, Callable[[str], Cell]] = {
        f"{phase.capitalize()} %": partial(_build_share_cell, outcomes, f"runtime.{phase}")
        for phase in (*PHASES, "other")
    }
    # None: with the share that sampling has in these runs.
    columns[f"Time / {labels.algorithm(PG.name)}'s"] = partial(_build_ratio_cell, outcomes, None)
    for share in SHARES:
        title = f"if sampling takes {formats.percent(share).replace('.0', '')}"
        columns[title] = partial(_build_ratio_cell, outcomes, share)
    return build_table(
        "arena-phases",
        outcomes.data,
        [[(labels.algorithm(name), name) for name in rank_algorithms(outcomes) if name in names]],
        single_group(columns),
        benchmarks=[outcomes.benchmark],
        number=number,
        **collect_run_facts(outcomes.trained_runs),
    )


def predict_ratio(ours: pd.DataFrame, pg: pd.DataFrame, share: float | None = None) -> float:
    """Return the time of an algorithm divided by PG's, from runs of both with the same seeds.

    `share` is the share of sampling in PG's time; None stands for the one of these runs.
    """
    sampling, total = ours[SAMPLING].mean(), ours[TOTAL].mean()
    pg_sampling, pg_total = pg[SAMPLING].mean(), pg[TOTAL].mean()
    if share is None:
        return total / pg_total
    rest_factor = (total - sampling) / (pg_total - pg_sampling)
    return share * sampling / pg_sampling + (1 - share) * rest_factor


def _build_share_cell(outcomes: FieldOutcomes, phase: str, name: str) -> Cell:
    runs = outcomes.outcomes[name].runs
    total = runs[TOTAL].sum()
    return Cell(formats.percent(runs[phase].sum() / total) if total else MISSING)


def _build_ratio_cell(outcomes: FieldOutcomes, share: float | None, name: str) -> Cell:
    """Return a cell with the time of an algorithm divided by PG's; see `predict_ratio`."""
    our_runs, pg_runs = outcomes.pair_runs(name, PG.name)
    if our_runs.empty:
        return Cell(MISSING, reason=NO_RUNTIME_PAIR)
    if share is not None and not pg_runs[SAMPLING].sum():
        return Cell(MISSING, reason=f"{labels.algorithm(PG.name)}'s runs have no sampling time")
    return Cell(formats.ratio(predict_ratio(our_runs, pg_runs, share)))
