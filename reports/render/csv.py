"""A table as CSV for spreadsheets and programs: numbers as printed, without marks and notes.

The last column says what the problems are, which stands in the caption elsewhere.
"""

import csv
import io

from rapid.benchmarks.problem_source import describe_sources
from reports.tables.table import Table

PROBLEMS = "Problems"


def render(table: Table) -> str:
    """Return a heading and a line for each row.

    A row without a label, which continues the one above, is given its label.
    """
    stream, label = io.StringIO(), ""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([table.stub, *table.column_names, PROBLEMS])
    problems = describe_sources(table.problems)
    for row in table.rows:
        label = row.label or label
        writer.writerow([label, *(cell.line for cell in row.all_cells), problems])
    return stream.getvalue()
