"""The tables of the reports. To add a table, write a function that returns it, and name it here.

    results        Tables 1 to 4, the paper's results, and Table 10, memory
    setup          Tables 5 to 7, hyperparameters and versions
    intervals      Tables 8 and 9, paired comparisons and confidence intervals
    claims         Table 11, the paper's claims
    studies        the tables of the report on the studies (ablations, docs/studies.md)
    arena, tuning  the tables of the report on the arena (a comparison of algorithms with tuned
                   learning rates, docs/arena.md), and of the trials of learning rates

texts.yaml has captions and notes, claims.yaml the claims. `columns` declares the columns of tables
whose rows are algorithms. `layout.build_table` makes a `table.Table`, which is plain data, from
rows, columns and the texts in texts.yaml; `notes` renders the texts.
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
    """Return the tables that these functions make, without those that are None."""
    return [table for function in functions if (table := function(measured))]
