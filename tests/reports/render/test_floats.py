"""Tables on pages of a paper: width, size of type, and pieces that fit a page."""

from dataclasses import replace

import pytest

from rapid.config.params_schema import ReportParams
from reports.paper_style import PaperStyle, load_styles
from reports.render.floats import Note, lay_out
from reports.tables.table import Cell, Group, Row, Table
from tests.reports.conftest import MADE_PROBLEMS

ICML = PaperStyle.from_params(ReportParams(style="icml"))
ICLR = PaperStyle.from_params(ReportParams(style="iclr"))


def make_table(columns: int = 3, rows: int = 5, groups: int = 1) -> Table:
    cells = [[Cell("12.3%", "1.2%")] * columns for _ in range(groups)]
    return Table(
        number=1,
        label="tab:main",
        caption="A caption.",
        stub="Algorithm",
        groups=[Group(f"MATH {group}", ["Pass@1"] * columns) for group in range(groups)],
        rows=[Row(f"RAPID (H={row})", cells) for row in range(rows)],
        notes=[],
        problems=[MADE_PROBLEMS],
    )


def test_styles_are_those_that_the_parameters_allow():
    annotation = ReportParams.model_fields["style"].annotation
    assert set(load_styles()) == set(annotation.__args__)


def test_lengths_of_the_user_replace_those_of_the_style():
    style = PaperStyle.from_params(ReportParams(style="icml", column_width=3.0, notes="end"))
    assert (style.column_width, style.text_width, style.notes) == (3.0, ICML.text_width, "end")


@pytest.mark.parametrize(
    ("style", "columns", "environment", "size"),
    [
        (ICML, 3, "table", "small"),
        (ICML, 6, "table*", "small"),
        (ICLR, 3, "table", "small"),
        (ICLR, 6, "table", "small"),
    ],
)
def test_a_table_takes_the_narrowest_width_in_which_it_fits(style, columns, environment, size):
    (piece,) = lay_out(make_table(columns), [], style)
    assert (piece.environment, piece.size) == (environment, size)


def test_columns_that_do_not_fit_beside_each_other_go_on_below():
    (piece,) = lay_out(make_table(columns=5, groups=4), [], ICLR)
    assert [panel.groups for panel in piece.panels] == [[0, 1], [2, 3]]
    assert piece.size == "footnotesize"


def test_rows_that_do_not_fit_a_page_go_on_in_the_next_piece():
    table = make_table(rows=100)
    pieces = lay_out(table, [], ICLR)
    assert len(pieces) > 1
    assert [piece.is_first for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert [row for piece in pieces for panel in piece.panels for row in panel.rows] == table.rows


def test_long_notes_go_on_in_the_next_piece():
    notes = [Note("word " * 200, name=str(number)) for number in range(10)]
    pieces = lay_out(make_table(), notes, ICLR)
    assert len(pieces) > 1
    assert [note for piece in pieces for note in piece.notes] == notes


def test_a_row_taller_than_a_page_is_kept():
    low = replace(ICLR, text_height=0.5)
    pieces = lay_out(make_table(rows=3), [], low)
    assert sum(len(panel.rows) for piece in pieces for panel in piece.panels) == 3
