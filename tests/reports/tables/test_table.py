"""Tables as plain data: rows in parts, and cells of estimates."""

from reports import formats
from reports.statistics.estimates import Estimate
from reports.tables.table import Cell, Row, Table, estimate_cell, stacked


def row(label: str, *cells: Cell) -> Row:
    return Row(label, [list(cells)])


def test_each_part_but_the_first_starts_after_a_rule():
    rows = stacked([[row("a"), row("b")], [row("c"), row("d")], [row("e")]])
    found = {one.label: one.section for one in rows}
    assert found == {"a": False, "b": False, "c": True, "d": False, "e": True}


def test_a_cell_of_an_estimate_has_its_interval_or_the_reason_why_there_is_none():
    show, known = formats.percent, Estimate(0.5, 0.4, 0.6)
    cell = estimate_cell(show, known, "unknown", under=("", "p = 0.1"))
    assert (cell.text, cell.under) == ("50.0%", ("[40.0%, 60.0%]", "p = 0.1"))
    assert estimate_cell(show, Estimate(0.5)).under == ()
    assert [Cell("1", d, under=("3",)).lines for d in ("", "2")] == [("3",), ("± 2", "3")]
    missing = [estimate_cell(show, one, "unknown") for one in (None, Estimate(None, reason="few"))]
    assert [(cell.text, cell.reason) for cell in missing] == [("—", "unknown"), ("—", "few")]


def test_one_marked_cell_asks_for_a_legend():
    def table(*cells: Cell) -> Table:
        return Table(1, "", "", "", [], [row("a", *cells), row("b", Cell("1"))], [], [])

    ranked, tied, neither = table(Cell("2", mark="best")), table(Cell("2", tied=True)), table()
    assert [one.ranked for one in (ranked, tied, neither)] == [True, False, False]
    assert [one.tied for one in (ranked, tied, neither)] == [False, True, False]
    assert not any(one.section for one in ranked.rows)
