"""Renders a table as CSV for spreadsheets and programs, with numbers as in the other formats.

The marks for best values, the footnotes and the notes are left out. The last column has the source
of the problems, which the other formats have in the caption.
"""

import csv
import io

from rapid.benchmarks.problem_source import describe_sources
from reports.tables.table import Table

PROBLEMS = "Problems"  # title of the last column


def render(table: Table) -> str:
    """Return a line with the column titles, and a line for each row.

    A row without a label continues the row above, and is printed with that row's label.
    """
    stream, label = io.StringIO(), ""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([table.stub, *table.column_names, PROBLEMS])
    problems = describe_sources(table.problems)
    for row in table.rows:
        label = row.label or label
        writer.writerow([label, *(cell.one_line for cell in row.all_cells), problems])
    return stream.getvalue()
