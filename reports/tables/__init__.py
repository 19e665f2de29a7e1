"""The tables of the report, in their order. To add one, write it and name it here.

    results        Tables 1 to 4, the paper's results, and Table 10
    setup          Tables 5 to 7, how the runs were made
    intervals      Tables 8 and 9, what the noise allows to say
    claims         Table 11, the paper's claims
    studies        the tables of the studies, a report of their own
    arena, tuning  the tables of the arena, and of its tuning

tables.yaml has their captions and notes, claims.yaml the claims. `columns` has the columns of
tables of runs; `layout` makes every table, of rows, columns and its description; `table` is a table
as plain data.
"""

from collections.abc import Callable

from reports.measured import Measured
from reports.tables import claims, intervals, results, setup
from reports.tables.table import Table

RESULTS: list[Callable[[Measured], Table | None]] = [
    results.main,
    results.families,
    results.staleness,
    results.correlations,
]
APPENDIX: list[Callable[[Measured], Table | None]] = [
    setup.imitation,
    setup.rl,
    setup.versions,
    intervals.comparisons,
    intervals.intervals,
    results.memory,
    claims.table,
]


def build(functions: list[Callable[[Measured], Table | None]], measured: Measured) -> list[Table]:
    """Return the tables that the parameters ask for."""
    return [table for function in functions if (table := function(measured))]
