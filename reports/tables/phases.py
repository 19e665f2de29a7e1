"""The table of where the time of training goes, and what it says of other machines.

The time of a run is that of sampling and of the rest: grading, backpropagation, copying weights. A
larger H shortens sampling, since more completions are sampled at once, and hardly the rest. On a
machine where sampling takes another share of PG's time, an algorithm's time is predicted from how
much each of the two parts changes here.
"""

from collections.abc import Callable
from functools import partial

import pandas as pd

from rapid.algorithms import PG
from rapid.artifacts.runs import PHASES
from reports import formats, labels
from reports.outcomes import FieldOutcomes, keep_timed
from reports.tables.arena import order
from reports.tables.layout import build_table, single_group
from reports.tables.notes import run_facts
from reports.tables.table import MISSING, Cell, Table

SAMPLING, TOTAL = "runtime.sampling", "runtime"
SHARES = (0.25, 0.5, 0.75, 0.9)  # of sampling in PG's time, on other machines
NO_PAIR = "no seed has runs of both on one kind of hardware"


def build(outcomes: FieldOutcomes, number: int) -> Table:
    """Return the table of the algorithms that were run, in the order of the field's table."""
    names = outcomes.measured.params.arena.list_algorithms(outcomes.field)
    columns: dict[str, Callable[[str], Cell]] = {
        f"{phase.capitalize()} %": partial(_share_cell, outcomes, f"runtime.{phase}")
        for phase in (*PHASES, "other")
    }
    columns[f"Time / {labels.algorithm(PG.name)}'s"] = partial(_ratio_cell, outcomes, None)
    for share in SHARES:
        title = f"if sampling takes {formats.percent(share).replace('.0', '')}"
        columns[title] = partial(_ratio_cell, outcomes, share)
    return build_table(
        "arena-phases",
        outcomes.measured,
        [[(labels.algorithm(name), name) for name in order(outcomes) if name in names]],
        single_group(columns),
        [outcomes.benchmark],
        number,
        **run_facts(outcomes.runs(outcomes.field.run_name(PG.name))),
    )


def predict_ratio(ours: pd.DataFrame, plain: pd.DataFrame, share: float | None = None) -> float:
    """Return the time of an algorithm divided by PG's.

    Args:
        ours, plain: rows of both in the data frame of `collect`, for the same seeds.
        share: of sampling in PG's time; None for the share that it has in these runs.
    """
    times = [(runs[SAMPLING].mean(), runs[TOTAL].mean()) for runs in (ours, plain)]
    (sampling, total), (plain_sampling, plain_total) = times
    if share is None:
        return total / plain_total
    rest = (total - sampling) / (plain_total - plain_sampling)
    return share * sampling / plain_sampling + (1 - share) * rest


def _share_cell(outcomes: FieldOutcomes, phase: str, name: str) -> Cell:
    runs = outcomes.outcomes[name].runs
    total = runs[TOTAL].sum()
    return Cell(formats.percent(runs[phase].sum() / total) if total else MISSING)


def _ratio_cell(outcomes: FieldOutcomes, share: float | None, name: str) -> Cell:
    ours, plain = outcomes.outcomes[name], outcomes.outcomes[PG.name]
    timed = [outcome.runs.dropna(subset=[TOTAL]).seed for outcome in (ours, plain)]
    seeds = keep_timed(pd.Index(timed[0]).intersection(timed[1]), ours, plain)
    if seeds.empty:
        return Cell(MISSING, reason=NO_PAIR)
    of_seeds = [outcome.runs[outcome.runs.seed.isin(seeds)] for outcome in (ours, plain)]
    if share is not None and not of_seeds[1][SAMPLING].sum():
        return Cell(MISSING, reason=f"{labels.algorithm(PG.name)} has no time of sampling")
    return Cell(formats.ratio(predict_ratio(*of_seeds, share)))
