"""A table as Markdown, sign by sign."""

from reports.render import markdown
from reports.tables.table import Cell, Group, Row, Table
from tests.reports.conftest import MADE_PROBLEMS

ROWS = [
    Row("my_*model* | <b>", [[Cell("5%", "1%", "best"), Cell("—", reason="no `lean_4`")], [Cell("1")]]),
    Row("RAPID", [[Cell("4%", mark="runner-up"), Cell("9", tied=True)], [Cell("< 0.001")]]),
]  # fmt: skip
PRINTED = r"""
**Table 3.** All \~5 \$ runs. Made problems in the format of MATH, not the published ones. Best in bold, runner-up in italics. † within noise of the best.

| Who | MATH: Pass@1 | MATH: Time | p |
| --- | --: | --: | --: |
| my\_\*model\* \| \<b> | **5% ± 1%** | — <sup>a</sup> | 1 |
| RAPID | *4%* | 9† | \< 0.001 |

A note by `make x_y`.

*Lean\_4*: it is old.

<sup>a</sup> no `lean_4`.
"""


def test_a_table_is_shown_as_it_is_written():
    groups = [Group("MATH", ["Pass@1", "Time"]), Group("", ["p"])]
    notes, named_notes = ["A note by `make x_y`."], [("Lean_4", "it is old.")]
    table = Table(3, "", "All ~5 $ runs.", "Who", groups, ROWS, notes, [MADE_PROBLEMS], named_notes)
    assert markdown.render(table) == PRINTED.lstrip()


def test_a_table_without_marks_and_notes_is_caption_and_table():
    table = Table(1, "", "One.", "x", [Group("", ["b"])], [Row("a", [[Cell("1")]])], [], [])
    assert markdown.render(table) == "**Table 1.** One.\n\n| x | b |\n| --- | --: |\n| a | 1 |\n"
