"""Performance profiles: the share of an algorithm's trainings that reach a level of accuracy."""

from collections.abc import Iterator, Sequence

import numpy as np

from reports import formats, labels
from reports.outcomes import FieldOutcomes, compute_mean_accuracies
from reports.statistics import curves
from reports.tables.layout import build_table, single_group
from reports.tables.standings import count_runs, rank_algorithms
from reports.tables.table import MISSING, Cell, Table


def build_profile_table(runs_of_arena: Sequence[FieldOutcomes], number: int) -> Table:
    """Return the profiles of the algorithms of a field.

    Args:
        runs_of_arena: the end points of the field in each run of the arena whose trainings count.
            The last one decides the order of the algorithms.
        number: the number of the table in the report.
    """
    latest = runs_of_arena[-1]
    accuracies, never = {}, {}
    for name in rank_algorithms(latest):
        outcomes = [run.outcomes[name] for run in runs_of_arena]
        accuracies[name] = np.concatenate([*map(compute_mean_accuracies, outcomes)])
        never[name] = sum(int(np.isinf(outcome.seconds).sum()) for outcome in outcomes)
    columns = {"Never": lambda name: Cell(str(never[name]))} | {
        formats.percent(level): lambda name, level=level: _build_share_cell(accuracies[name], level)
        for level in _find_informative_levels(np.concatenate([*accuracies.values()]))
    }
    return build_table(
        "profile",
        latest.data,
        [[(labels.algorithm(name), name) for name in accuracies]],
        single_group(columns),
        [latest.benchmark],
        number,
        runs_of_arena=len(runs_of_arena),
        **count_runs({name: len(values) for name, values in accuracies.items()}),
    )


def _build_share_cell(accuracies: np.ndarray, level: float) -> Cell:
    """Return a cell with the share of trainings that reach the level; a dash without trainings."""
    if not accuracies.size:
        return Cell(MISSING)
    return Cell(formats.percent((accuracies >= level - curves.ROUNDING).mean()))


def _find_informative_levels(accuracies: np.ndarray) -> Iterator[float]:
    """Yield multiples of LEVEL_SPACING that more than 2 % but less than 98 % of trainings reach."""
    for number in range(1, round(1 / curves.LEVEL_SPACING)) if accuracies.size else ():
        level = number * curves.LEVEL_SPACING
        if 0.02 < (accuracies >= level - curves.ROUNDING).mean() < 0.98:
            yield level
