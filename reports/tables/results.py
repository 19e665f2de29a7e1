"""The paper's Tables 1 to 4, and Table 10, peak memory.

H is the number of optimizer steps per inference batch. All values are computed from the data frame
of `collect_runs`; the parameters determine only which rows and columns a table has. A cell without
a value has an em dash and a footnote with the reason.
"""

import pandas as pd

from rapid.algorithms import RAPID
from reports import labels
from reports.report_data import ReportData
from reports.tables import columns
from reports.tables.columns import (
    Block,
    Column,
    build_algorithm_table,
    build_blocks,
    list_accuracy_columns,
    render_column_notes,
)
from reports.tables.layout import build_table, single_group
from reports.tables.notes import collect_run_facts
from reports.tables.table import Cell, Table


def build_main_table(data: ReportData) -> Table:
    """Return Table 1: a row for each algorithm, a group of columns for each benchmark."""
    main = data.params.tables.main
    return build_algorithm_table(
        "main",
        data,
        data.label_rows(main.algorithms),
        _build_accuracy_blocks(data, columns.RUNTIME),
        main.seeds,
    )


def build_families_table(data: ReportData) -> Table | None:
    """Return Table 2: a row for each algorithm, a group of columns for each model.

    None if the parameters name no models for it.
    """
    families = data.params.tables.families
    if not families.models:
        return None
    shown_columns = [*list_accuracy_columns(data.params, families.benchmark), columns.TIME]
    return build_algorithm_table(
        "families",
        data,
        data.label_rows(families.algorithms),
        [
            Block(title=model, benchmark=families.benchmark, model=model, columns=shown_columns)
            for model in families.models
        ],
        families.seeds,
        benchmarks=[families.benchmark],
    )


def build_staleness_table(data: ReportData) -> Table | None:
    """Return Table 3: a row for each H, a group of columns for each benchmark.

    None if the parameters list no H for it.
    """
    if not data.params.tables.staleness.H:
        return None
    return build_algorithm_table(
        "staleness",
        data,
        {RAPID.format_name(h): str(h) for h in data.params.tables.staleness.H},
        _build_accuracy_blocks(data, columns.TIME, columns.STALENESS),
        data.params.tables.main.seeds,
    )


def build_correlations_table(data: ReportData) -> Table | None:
    """Return Table 4: a row for each pass@k, a column for each metric that H is correlated with.

    None if the parameters list no H for Table 3.
    """
    if not data.params.tables.staleness.H:
        return None
    all_runs = pd.concat(data.h_sweeps.values())
    # The first row of a benchmark is labelled with it. The subject of a row is (runs, column).
    sections = [
        [
            (data.label_benchmark(name) * (position == 0), (runs, column))
            for position, column in enumerate(list_accuracy_columns(data.params, name))
        ]
        for name, runs in data.h_sweeps.items()
    ]
    cells = {
        "Metric": lambda row: Cell(row[1].title),
        "r(H, Acc)": lambda row: row[1].build_correlation_cell(row[0]),
        "r(H, Time)": lambda row: columns.TIME.build_correlation_cell(row[0]),
        "r(H, Stale)": lambda row: columns.STALENESS.build_correlation_cell(row[0]),
    }
    return build_table(
        "correlations",
        data,
        sections,
        single_group(cells),
        h_values=data.params.tables.staleness.H,
        seeds=data.params.tables.main.seeds,
        # Without notes on the ranking of algorithms by time, as the table has none.
        column_notes=render_column_notes(
            [columns.UNRANKED_TIME, columns.STALENESS], all_runs, algorithms=[]
        ),
        **collect_run_facts(all_runs),
    )


def build_memory_table(data: ReportData) -> Table:
    """Return Table 10: peak memory of training, with a column for each benchmark."""
    return build_algorithm_table(
        "memory",
        data,
        {name: labels.algorithm(name) for name in data.algorithms},
        build_blocks(data, lambda name: [columns.MEMORY]),
        data.params.tables.main.seeds,
        flat=True,  # the benchmark is the title of its only column
    )


def _build_accuracy_blocks(data: ReportData, *columns_after: Column) -> list[Block]:
    """Return a block for each benchmark: columns of accuracy, then these columns."""
    return build_blocks(
        data, lambda name: [*list_accuracy_columns(data.params, name), *columns_after]
    )
