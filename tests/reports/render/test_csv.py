"""A table as CSV: what a spreadsheet reads from it."""

import csv
import io

from reports.render import csv as csv_renderer
from reports.tables.table import Cell, Group, Row, Table
from tests.reports.conftest import MADE_PROBLEMS

PROBLEMS = "Made problems in the format of MATH, not the published ones."


def test_rows_have_full_column_names_units_and_no_marks():
    rows = [
        Row('PG, "plain"', [[Cell("5%", "1%", "best"), Cell("—", reason="none")], [Cell("2.1s")]]),
        Row("", [[Cell("4%", extra_lines=("[1%, 9%]",)), Cell("9", tied=True)], [Cell("3.0s")]]),
    ]
    groups = [Group("MATH", ["Pass@1", "Gain"]), Group("", ["Time"])]
    table = Table(3, "", "A caption.", "Who", groups, rows, ["A note."], [MADE_PROBLEMS])
    assert list(csv.reader(io.StringIO(csv_renderer.render(table)))) == [
        ["Who", "MATH: Pass@1", "MATH: Gain", "Time", "Problems"],
        ['PG, "plain"', "5% ± 1%", "—", "2.1s", PROBLEMS],
        ['PG, "plain"', "4% [1%, 9%]", "9", "3.0s", PROBLEMS],
    ]
