"""The tables of the report, in their order. To add one, write it and name it here.

    results        Tables 1 to 4, the paper's results, and Table 10
    setup          Tables 5 to 7, how the runs were made
    intervals      Tables 8 and 9, what the noise allows to say
    versus_paper   Tables 11 and 13, beside the paper
    claims         Table 12, the paper's claims
    studies        the tables of the studies, a report of their own

`columns` has the columns that tables are made of, `table` a table as plain data, and `notes` the
sentences below it.
"""

from collections.abc import Callable

from reports.measured import Measured
from reports.tables import claims, intervals, results, setup, versus_paper
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
    versus_paper.orders,
    claims.table,
    versus_paper.signs,
]


def build(made: list[Callable[[Measured], Table | None]], measured: Measured) -> list[Table]:
    """Return the tables that the parameters ask for."""
    return [table for make in made if (table := make(measured))]
