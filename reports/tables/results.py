"""The paper's Tables 1 to 4, and Table 10, peak memory.

1. `main`          all algorithms on all benchmarks, with one model
2. `families`      several models on one benchmark
3. `staleness`     RAPID at several H (optimizer steps per inference batch)
4. `correlations`  correlations of H with accuracy, runtime and staleness

All values are computed from the data frame of `collect`; the parameters decide only which rows and
columns a table has. A cell without a value has an em dash and a footnote with the reason.
"""

import pandas as pd

from rapid.algorithms import RAPID
from reports import labels
from reports.measured import Measured
from reports.tables import columns
from reports.tables.columns import (
    Block,
    Column,
    accuracy,
    algorithm_table,
    by_benchmark,
    column_notes,
)
from reports.tables.layout import build_table, single_group
from reports.tables.notes import run_facts
from reports.tables.table import Cell, Table


def main(measured: Measured) -> Table:
    """Return Table 1: a row for each algorithm, a group of columns for each benchmark."""
    spec = measured.params.tables.main
    return algorithm_table(
        "main",
        measured,
        measured.rows(spec.algorithms),
        _with_accuracy(measured, columns.RUNTIME),
        spec.seeds,
    )


def families(measured: Measured) -> Table | None:
    """Return Table 2: a row for each algorithm, a group of columns for each model.

    None if the parameters name no models for it.
    """
    spec = measured.params.tables.families
    if not spec.models:
        return None
    shown = [*accuracy(measured.params, spec.benchmark), columns.TIME]
    return algorithm_table(
        "families",
        measured,
        measured.rows(spec.algorithms),
        [Block(model, spec.benchmark, model, shown) for model in spec.models],
        spec.seeds,
        benchmarks=[spec.benchmark],
    )


def staleness(measured: Measured) -> Table | None:
    """Return Table 3: a row for each H, a group of columns for each benchmark.

    None if the parameters list no H for it.
    """
    if not measured.params.tables.staleness.H:
        return None
    return algorithm_table(
        "staleness",
        measured,
        {RAPID.format_name(h): str(h) for h in measured.params.tables.staleness.H},
        _with_accuracy(measured, columns.TIME, columns.STALENESS),
        measured.params.tables.main.seeds,
    )


def correlations(measured: Measured) -> Table | None:
    """Return Table 4: a row for each pass@k, a column for each metric that H is correlated with.

    None if the parameters list no H for Table 3.
    """
    if not measured.params.tables.staleness.H:
        return None
    sweep = pd.concat(measured.sweeps.values())
    sections = [
        [
            (measured.label(name) * (position == 0), (runs, column))
            for position, column in enumerate(accuracy(measured.params, name))
        ]
        for name, runs in measured.sweeps.items()
    ]
    shown = {
        "Metric": lambda row: Cell(row[1].title),
        "r(H, Acc)": lambda row: row[1].correlation(row[0]),
        "r(H, Time)": lambda row: columns.TIME.correlation(row[0]),
        "r(H, Stale)": lambda row: columns.STALENESS.correlation(row[0]),
    }
    return build_table(
        "correlations",
        measured,
        sections,
        single_group(shown),
        ratios=measured.params.tables.staleness.H,
        seeds=measured.params.tables.main.seeds,
        column_notes=column_notes([columns.TIME.unranked, columns.STALENESS], sweep, []),
        **run_facts(sweep),
    )


def memory(measured: Measured) -> Table:
    """Return Table 10: peak memory of training, with a column for each benchmark."""
    return algorithm_table(
        "memory",
        measured,
        {name: labels.algorithm(name) for name in measured.algorithms},
        by_benchmark(measured, lambda name: [columns.MEMORY]),
        measured.params.tables.main.seeds,
        flat=True,
    )


def _with_accuracy(measured: Measured, *columns_after: Column) -> list[Block]:
    """Return a block for each benchmark: columns of accuracy, then these columns."""
    return by_benchmark(measured, lambda name: [*accuracy(measured.params, name), *columns_after])
