"""The documents' figures are marked, and what their marks name gives them."""

import json
import re
import shlex

import pytest

from rapid.artifacts.files import write_text
from rapid.config.specs import runs
from tests import documents
from tests.conftest import ROOT
from tests.documents import MARK, MISSING, PAGES

MARKS = [(page, *mark) for page in PAGES for mark in documents.marks(page)]
MEASURED = re.compile(
    r"\d[\d.,]*(?: ?(?:%|ms|min\b|GB|MB|times as|points)| (?:s|seconds|minutes)\b)"
)
# The paper's figures and settings, which other tests look at; the first lines of files.
ELSEWHERE = {"reproduction-notes.md", "architecture.md"}


def of(*names: str) -> list[tuple[str, str]]:
    """Return the marks by these makers, each with its text."""
    return [(mark, text) for _, mark, _, text in MARKS if mark.split()[0] in names]


def first_cells(table: str) -> list[str]:
    return [
        re.split(r" {2,}", line.strip())[0] for line in table.splitlines() if "  " in line.strip()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_measured_figure_is_within_a_mark(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- ") == 2 * len(MARK.findall(text)), "a mark is not closed"
    unmarked = [found[0] for found in MEASURED.finditer(MARK.sub("", text))]
    assert page.name in ELSEWHERE or not unmarked


@pytest.mark.parametrize(
    ("mark", "text"), [(mark, text) for _, mark, command, text in MARKS if not command]
)
def test_what_is_made_from_the_tree_is_as_it_says(mark, text):
    assert documents.make(mark, text, ROOT) == text, "make figures-of-docs WRITE=1"


@pytest.mark.parametrize("command", sorted({command for _, _, command, _ in MARKS if command}))
def test_a_command_that_leaves_files_is_there(command):
    program, *arguments = shlex.split(command)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {*arguments} <= {*targets}
    else:
        files = [name for name in arguments if name.endswith(".yaml")]
        assert files and all((ROOT / name).exists() for name in files)


@pytest.mark.parametrize(("mark", "text"), of("table1"))
def test_a_table_has_the_rows_that_its_parameters_ask_for(mark, text, tmp_path):
    asked = documents.make(mark, text, tmp_path)
    assert MISSING in asked
    table, _, _ = text.partition("\n\n")
    assert first_cells(table) == first_cells(asked.partition("\n\n")[0])


@pytest.mark.parametrize(("mark", "text"), of("plan_check"))
def test_the_runs_of_a_table_are_asked_for(mark, text):
    asked = {(run.benchmark, run.model, run.algorithm) for run in runs(documents.params())}
    _, *rows, _ = text.splitlines()
    assert {tuple(row.split()[:3]) for row in rows} <= asked


def test_a_sweep_without_runs_is_not_made(tmp_path):
    assert documents.sweep("", tmp_path, "2", "4") == MISSING


@pytest.mark.parametrize(("mark", "text"), of("sweep"))
def test_a_sweep_has_the_h_that_it_says(mark, text):
    head, *rows = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    ratios = [row[head.index("rapid.H")] for row in rows]
    assert ratios == mark.split()[1:]
    asked = {run.algorithm for run in runs(documents.params())}
    assert {f"rapid-H{ratio}" for ratio in ratios} <= asked


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Return a function that makes a page the only one."""
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    monkeypatch.setattr(documents, "PAGES", [tmp_path / "page.md"])
    (tmp_path / "table.txt").write_text("70 % after 2.9 s, -1.4")

    def write(mark: str, text: str):
        write_text(tmp_path / "page.md", f"A <!-- figures: {mark} -->{text}<!-- end --> 3.\n")
        return tmp_path / "page.md"

    return write


def test_what_differs_is_printed_and_written_where_asked(page, capsys, tmp_path):
    path = page("within table.txt", "70 % after 2.8 s [-1.4]")
    said = path.read_text()
    assert documents.main(["--root", str(tmp_path)]) == 1
    assert "+A <!-- figures: within table.txt -->70 % after ? s [-1.4]" in capsys.readouterr().out
    assert path.read_text() == said
    assert documents.main(["--root", str(tmp_path), "--write"]) == 0
    assert path.read_text() == said.replace("2.8", "?")
    page("within table.txt", "70 % after 2.9 s")
    assert documents.main(["--root", str(tmp_path)]) == 0


def test_what_cannot_be_made_is_named_with_its_command(page, capsys, tmp_path):
    path = page("within none.txt; by make none", "70 %")
    said = path.read_text()
    assert documents.main(["--root", str(tmp_path), "--write"]) == 0
    assert "page.md: not made: within none.txt. Its files come by: make none" in (
        capsys.readouterr().out
    )
    assert path.read_text() == said


def test_the_time_of_a_command_is_noted(monkeypatch, tmp_path):
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    other = {"command": "true", "seconds": 9, "hardware": "another"}
    write_text(tmp_path / documents.TIMES, json.dumps(other) + "\n")
    for _ in range(2):
        assert documents.main(["--time", "true"]) == 0
    [here] = [one for one in documents.timed() if one != other]
    assert here.keys() == {"command", "seconds", "date", "commit", "hardware"}
    assert here["seconds"] < 9
    assert len(documents.timed()) == 2


def test_a_row_has_the_times_of_its_command(monkeypatch):
    made = {"command": "make it", "commit": "0123456789+dirty"}
    rows = [
        made | {"date": "2026-01-02T03", "hardware": "a core", "seconds": 100.0},
        made | {"date": "2026-01-01T03", "hardware": "a slow core", "seconds": 190.0},
        made | {"date": "2026-01-03T03", "hardware": "a core", "command": "make all"},
    ]
    monkeypatch.setattr(documents, "timed", lambda: rows)
    text = "| `make it` | 9 | - | does |\n| `make other` | 1 | 2 | 3 |\nMeasured on: nothing.\n"
    assert documents.make("times", text, ROOT) == (
        "| `make it` | 2 to 3 minutes   | 2026-01-02, 0123456+dirty | does |\n"
        "| `make other` | 1 | 2 | 3 |\nMeasured on: a core; a slow core.\n"
    )
