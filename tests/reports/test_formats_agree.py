"""All formats of a report show the same cells: texts, marks and footnotes in the same places."""

from dataclasses import replace

import pytest

from rapid.config import specs
from rapid.config.params import load
from tests.reports import reading
from tests.reports.conftest import RunFiles, small_values, write_report
from tests.reports.reading import PrintedTable

REASON = "no `lean_4` & <none>, 50 % of $x | y~"


@pytest.fixture(scope="module", params=["all runs", "some runs"])
def folder(request, tmp_path_factory):
    """The folder of a report of small tables, of all runs or of two thirds of them."""
    root, values = tmp_path_factory.mktemp("formats"), small_values()
    values["tables"]["main"]["seeds"] = [*range(6)]  # fewer than five are never tied
    params, runs = load(values), RunFiles(root)
    runs.write_all(params)
    if request.param == "some runs":
        for number, run in enumerate(specs.add_base_runs(params, specs.list_table_runs(params))):
            if number % 6 == 0:
                runs.write_evaluation(run, status="unavailable", note=REASON)
            elif number % 6 == 1 and run.algorithm != "base":
                runs.delete(root / run.folder / "summary.json")
    return write_report(values, root)


@pytest.fixture(scope="module")
def printed(folder) -> dict[int, PrintedTable]:
    """The tables of tables.txt and appendix.txt."""
    texts = ((folder / name).read_text() for name in ("tables.txt", "appendix.txt"))
    return {number: table for text in texts for number, table in reading.read_text(text).items()}


@pytest.fixture(scope="module")
def page(folder) -> reading.Page:
    return reading.Page((folder / "report.html").read_text())


def test_the_terminal_has_marks_ties_and_reasons(printed):
    """The compared numbers exist; otherwise formats would agree on nothing."""
    assert [*printed] == [*range(1, 12)]
    cells = [cell for table in printed.values() for row in table.rows for cell in row]
    assert len(cells) > 300
    assert {cell.mark for cell in cells} == {"", "best", "runner-up"}
    assert {cell.tied for cell in cells} == {True, False}
    assert len({cell.reason for cell in cells}) > 3
    assert any("±" in cell.text for cell in cells) and any("−" in cell.text for cell in cells)


def test_latex_agrees_with_the_terminal(folder, printed):
    tables = reading.read_latex((folder / "tables.tex").read_text(), 1)
    tables |= reading.read_latex((folder / "appendix.tex").read_text(), len(tables) + 1)
    assert tables == printed


def test_the_page_agrees_with_the_terminal(page, printed):
    assert page.tables == printed


def test_markdown_agrees_with_the_terminal(page, printed):
    copies = {number: page.copies[number, "markdown"] for number in printed}
    assert {number: reading.read_markdown(copy) for number, copy in copies.items()} == printed


def test_latex_to_copy_agrees_with_the_terminal(page, printed):
    copies = {number: page.copies[number, "latex"] for number in printed}
    tables = {number: reading.read_latex(copy, number)[number] for number, copy in copies.items()}
    assert tables == printed


def test_csv_agrees_with_the_terminal(page, printed):
    for number, table in printed.items():
        copy = reading.read_csv(page.copies[number, "csv"])
        assert copy.columns == table.columns
        labels = table.labels
        for row, label in enumerate(labels):
            labels = [*labels[:row], label or labels[row - 1], *labels[row + 1 :]]
        assert copy.labels == labels
        plain_rows = [[replace(c, mark="", tied=False, reason="") for c in r] for r in table.rows]
        assert copy.rows == plain_rows
        assert table.caption.endswith(copy.caption)
