"""Tables for a terminal, character by character."""

from reports.render import text
from reports.tables.table import Cell, Group, Row, Table

LONG_REASON = "no Lean " * 10 + "here"
HEADS = ["a" * 40, "b" * 29, "c"]  # the first two and the labels take 80 characters
ROWS = [
    Row("PG", [[Cell("5%", "1%", "best"), Cell("—", reason=LONG_REASON)], [Cell("1")] * 3]),
    Row("RAPID", [[Cell("4%", mark="runner-up"), Cell("9", tied=True)], [Cell("2")] * 3]),
]
PRINTED = f"""\
Table 3. One.

MATH
  Who    Pass@1    Time
  -----  --------  -----
  PG     5% ± 1%*  — [a]
  RAPID  4%+       9~

  Who    {HEADS[0]}  {HEADS[1]}
  -----  {"-" * 40}  {"-" * 29}
  PG     1{" " * 39}  1
  RAPID  2{" " * 39}  2

  Who    c
  -----  -
  PG     1
  RAPID  2

* best, + runner-up. ~ within noise of the best. A note.
Lean: no no no no no no no no no no no no no no no no no no no no no no no no no
    no no no no no no no no no no no no no no no
[a] no Lean no Lean no Lean no Lean no Lean no Lean no Lean no Lean no Lean no
    Lean here.
"""


def test_wide_table_is_split_into_panels_and_notes_are_wrapped():
    groups = [Group("MATH", ["Pass@1", "Time"]), Group("", HEADS)]
    table = Table(3, "", "One.", "Who", groups, ROWS, ["A note."], [], [("Lean", "no " * 40)])
    assert text.render([table]) == PRINTED


def test_the_first_line_names_the_experiment():
    table = Table(1, "", "One.", "", [Group("", ["b"])], [Row("a", [[Cell("1")]])], [], [])
    assert text.render([table], "mine") == f"Experiment: mine\n\n{text.render([table])}"


def test_findings_are_above_the_tables_and_an_interval_is_not_broken():
    table = Table(1, "", "One.", "", [Group("", ["b"])], [Row("a", [[Cell("1")]])], [], [])
    lead = ["x" * 77 + " 0.5\N{NO-BREAK SPACE}[0.4,\N{NO-BREAK SPACE}0.6]", "Second."]
    head = "x" * 77 + "\n0.5 [0.4, 0.6]\n\nSecond.\n\n"
    assert text.render([table], None, lead) == head + text.render([table])
    assert text.render([table], "mine", lead).startswith(f"Experiment: mine\n\n{head}Table 1.")


def test_table_without_marks_has_no_legend_and_paths_are_not_broken():
    notes = ["x" * 71, "left-over", "/a-path" * 12]
    table = Table(1, "", "One.", "", [Group("", ["b"])], [Row("a", [[Cell("1")]])], notes, [])
    assert text.render([table]).endswith("  a  1\n\n" + "\n".join(notes) + "\n")
