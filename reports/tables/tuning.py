"""Tables of the trials that choose the arena's learning rates (`reports.tuning`).

They are in the report on these trials, and in the arena's report.
"""

from dataclasses import replace

import pandas as pd

from rapid.config.arena import RateRule
from rapid.config.specs import BASE
from reports import formats, labels
from reports.measured import Measured
from reports.tables.layout import build_table, single_group
from reports.tables.table import MISSING, Cell, Table
from reports.tuning import find_ties, score_rates, trials

AT_THE_END = "this is the first or last rate that was tried; the best rate may lie beyond it"


def tables(measured: Measured) -> list[Table]:
    """Return a table for each benchmark, from the runs of the trials."""
    return _tables(measured, trials(measured), 1)


def recorded(measured: Measured, number: int) -> list[Table]:
    """Return a table for each benchmark, from the trials that `reports.tuning` recorded in a file.

    [] if the file does not exist.

    Args:
        number: the number of the first table.
    """
    path = measured.root / "experiments" / f"{measured.params.name}-tuning.csv"
    return _tables(measured, pd.read_csv(path), number) if path.is_file() else []


def _tables(measured: Measured, record: pd.DataFrame, first_number: int) -> list[Table]:
    return [
        _table(measured, benchmark, record[record.benchmark == benchmark], number)
        for number, benchmark in enumerate(measured.params.arena.fields, start=first_number)
    ]


def _table(measured: Measured, benchmark: str, record: pd.DataFrame, number: int) -> Table:
    rates = sorted(set(record[record.algorithm != BASE].learning_rate))
    rule = measured.params.arena.rate_rule
    cells = {
        name: _cells(record[record.algorithm == name], rates, rule)
        for name in measured.params.arena.fields[benchmark].rates
        if name in set(record.algorithm)
    }
    columns = {
        f"{rate:g}": lambda name, position=position: cells[name][position]
        for position, rate in enumerate(rates)
    }
    return build_table(
        "tuning",
        measured,
        [[(labels.algorithm(name), name) for name in cells]],
        single_group(columns, "Learning rate"),
        [benchmark],
        number,
        trial_seeds=record[record.algorithm != BASE].seed.nunique(),
        rule=rule,
    )


def _cells(trials_of: pd.DataFrame, rates: list[float], rule: RateRule) -> list[Cell]:
    """Return a cell with the accuracy of an algorithm at each rate.

    The chosen rate is marked, and with the rule `highest` its ties are too.
    """
    means = trials_of.groupby("learning_rate").accuracy.mean().reindex(rates)
    cells = {
        rate: Cell(MISSING if pd.isna(mean) else formats.percent(mean))
        for rate, mean in means.items()
    }
    scores = score_rates(trials_of, rule).dropna()  # NaN if a rate, or its neighbour, has no trial
    if not scores.empty:
        best = scores.idxmax()
        for rate in find_ties(trials_of, best) if rule == "highest" else []:
            cells[rate] = replace(cells[rate], tied=True)
        at_the_end = AT_THE_END if best in (rates[0], rates[-1]) else ""
        cells[best] = replace(cells[best], mark="best", reason=at_the_end)
    return list(cells.values())
