"""Tables as data: rows in sections, cells of estimates, legends and footnote letters."""

import pandas as pd
import pytest

from reports import formats
from reports.report_data import ReportData
from reports.statistics.estimates import Estimate
from reports.tables.layout import build_table, single_group
from reports.tables.table import Cell, Row, Table, build_estimate_cell, get_footnote_key
from tests.conftest import ROOT


def test_each_section_after_the_first_starts_with_a_line(params):
    sections = [[("a", 1), ("b", 2)], [("c", 3), ("d", 4)], [("e", 5)]]
    data = ReportData(params, pd.DataFrame(), ROOT)
    columns = single_group({"Twice": lambda number: Cell(str(2 * number))})
    table = build_table("sft-setup", data, sections, columns)
    assert [(row.label, row.cells[0][0].text, row.starts_section) for row in table.rows] == [
        ("a", "2", False), ("b", "4", False), ("c", "6", True), ("d", "8", False), ("e", "10", True),
    ]  # fmt: skip


def test_cell_of_an_estimate_has_its_interval_or_a_reason():
    show = formats.percent
    cell = build_estimate_cell(
        show, Estimate(0.5, 0.4, 0.6), "unknown", extra_lines=("", "p = 0.1")
    )
    assert (cell.text, cell.extra_lines) == ("50.0%", ("[40.0%, 60.0%]", "p = 0.1"))
    assert build_estimate_cell(show, Estimate(0.5)).extra_lines == ()
    assert [Cell("1", deviation, extra_lines=("3",)).lines for deviation in ("", "2")] == [
        ("3",),
        ("± 2", "3"),
    ]
    missing = [
        build_estimate_cell(show, estimate, "unknown")
        for estimate in (None, Estimate(None, reason="few"))
    ]
    assert [(cell.text, cell.reason) for cell in missing] == [("—", "unknown"), ("—", "few")]


@pytest.mark.parametrize(
    ("cells", "ranked", "tied"),
    [([Cell("2", mark="best")], True, False), ([Cell("2", tied=True)], False, True), ([], 0, 0)],
)
def test_a_table_has_ranks_or_ties_if_one_cell_has_them(cells, ranked, tied):
    rows = [Row("a", [cells]), Row("b", [[Cell("1")]])]
    table = Table(1, "", "", "", [], rows, [], [])
    assert (table.has_ranks, table.has_ties) == (ranked, tied)


def test_footnote_letters_continue_after_z():
    assert [get_footnote_key(n) for n in (0, 25, 26, 51, 52, 701, 702)] == [
        "a", "z", "aa", "az", "ba", "zz", "aaa",
    ]  # fmt: skip
