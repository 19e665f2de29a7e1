"""The trials of learning rates as tables: in the report of a tuning, and of the arena after it."""

from dataclasses import replace

import pandas as pd

from rapid.config.arena import ArenaField
from rapid.config.specs import BASE
from reports import formats, labels
from reports.measured import Measured
from reports.tables.table import MISSING, Cell, Group, Row, Table
from reports.tuning import smoothed, trials

AT_THE_END = "the best rate may be beyond the end of the grid"


def tables(measured: Measured) -> list[Table]:
    """Return a table for each benchmark of a tuning."""
    return _tables(measured, trials(measured), 1)


def recorded(measured: Measured, number: int) -> list[Table]:
    """Return the tables of the tuning that the arena's rates are from, if it is on record."""
    path = measured.root / "experiments" / f"{measured.params.name}-tuning.csv"
    return _tables(measured, pd.read_csv(path), number) if path.is_file() else []


def _tables(measured: Measured, record: pd.DataFrame, number: int) -> list[Table]:
    found = measured.params.arena.fields.items()
    return [
        _table(measured, benchmark, field, record[record.benchmark == benchmark], position)
        for position, (benchmark, field) in enumerate(found, start=number)
    ]


def _table(
    measured: Measured, benchmark: str, field: ArenaField, record: pd.DataFrame, number: int
) -> Table:
    rates = sorted(set(record[record.algorithm != BASE].learning_rate))
    seeds = record.seed.nunique()
    rows = [
        Row(labels.algorithm(name), [_cells(own, rates)])
        for name in field.rates
        if not (own := record[record.algorithm == name]).empty
    ]
    return Table(
        number=number,
        label=f"tab:arena-tuning-{benchmark}",
        caption=f"Learning rates that were tried on validation problems of "
        f"{measured.label(benchmark)}.",
        stub="Algorithm",
        groups=[Group("Learning rate", [f"{rate:g}" for rate in rates])],
        rows=rows,
        notes=[
            f"Pass@1, mean over {seeds} seeds that the arena does not have, on problems that it "
            "does not test on. Best is the rate that was taken: the highest mean, averaged with "
            "its neighbours by weights of 1, 2 and 1. An H that is not here has another H's rate."
        ],
        problems=[measured.problems[benchmark]],
    )


def _cells(own: pd.DataFrame, rates: list[float]) -> list[Cell]:
    means = own.groupby("learning_rate").accuracy.mean().reindex(rates)
    cells = {
        rate: Cell(MISSING if pd.isna(mean) else formats.percent(mean))
        for rate, mean in means.items()
    }
    known = smoothed(own).dropna()  # a rate beside a missing trial has none
    if not known.empty:
        best = known.idxmax()
        at_the_end = AT_THE_END if best in (rates[0], rates[-1]) else ""
        cells[best] = replace(cells[best], mark="best", reason=at_the_end)
    return list(cells.values())
