"""The tables of the reports.

To add a table to the main report, write a function that returns it, and add it to `RESULTS` or
`APPENDIX` below.

captions.yaml has captions and notes, and arena_captions.yaml those of the arena, the comparison of
all algorithms (docs/arena.md). claims.yaml has the paper's claims. `columns` declares the columns
of tables whose rows are algorithms. `layout.build_table` makes a `table.Table`, which is plain
data, from rows, columns and these captions; `notes` renders captions and notes.
"""

from collections.abc import Callable

from reports.report_data import ReportData
from reports.tables import claims, intervals, results, setup
from reports.tables.table import Table

RESULTS: list[Callable[[ReportData], Table | None]] = [
    results.build_main_table,
    results.build_families_table,
    results.build_staleness_table,
    results.build_correlations_table,
]
APPENDIX: list[Callable[[ReportData], Table | None]] = [
    setup.build_sft_table,
    setup.build_rl_table,
    setup.build_versions_table,
    intervals.build_comparisons_table,
    intervals.build_intervals_table,
    results.build_memory_table,
    claims.build_paper_claims_table,
]


def build_tables(
    functions: list[Callable[[ReportData], Table | None]], data: ReportData
) -> list[Table]:
    """Return the tables that these functions make.

    A function returns None if the parameters ask for no such table.
    """
    return [table for function in functions if (table := function(data))]
