"""Numbers in the documents are those of commands and results; paths and links exist."""

import re
from pathlib import Path

import pytest

from rapid.artifacts.evaluations import Evaluation
from rapid.artifacts.runs import RunSummary, StepRecord
from tests import commands, documents, field_tables
from tests.conftest import ROOT

MARKS = [mark for page in documents.PAGES for mark in documents.read_marks(page)]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pages in ("*.md", "docs/**/*.md", "examples/*.md")
    for path in ROOT.glob(pages)
)
FOLDERS = "rapid|examples|reports|performance|tests|docs|workflow|experiments|requirements"
PATH = rf"`((?:{FOLDERS})/[\w/.-]*(?:\.(?:py|md|smk|js|lean|yaml|yml|j2|txt|css)|/))`"
MODULE = re.compile(rf"python -m ((?:{FOLDERS})\b[\w.]*)")
# Paths that commands write, or that have a name to replace, and that need not exist.
OUTPUT = re.compile(
    r"(experiments/\w+/)?reports/.*(tables|appendix)\.txt|(reports|experiments)/\w+/$|.*NAME"
)


def read_page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def list_marks_without_commands() -> list:
    """Return the marks; those whose text is read from many recorded runs are slow."""
    return [
        pytest.param(
            mark, marks=pytest.mark.slow if mark.generator.split()[0] in ("arena", "study") else ()
        )
        for mark in MARKS
        if not mark.command
    ]


@pytest.mark.parametrize("mark", list_marks_without_commands(), ids=lambda mark: mark.generator)
def test_generated_texts_that_need_no_results_are_up_to_date(mark):
    assert mark.generate_text(ROOT) == mark.text, "make figures-of-docs WRITE=1"


@pytest.mark.parametrize(
    "mark",
    [mark for mark in MARKS if mark.generator.startswith("table1 ")],
    ids=lambda mark: mark.generator,
)
def test_a_table_of_runs_has_the_rows_of_its_parameters(mark, tmp_path):
    def list_first_cells(text: str) -> list[str]:
        lines = [line.strip() for line in text.partition("\n\n")[0].splitlines()]
        return [re.split(r" {2,}", line)[0] for line in lines if "  " in line]

    without_runs = mark.generate_text(tmp_path)
    assert documents.MISSING in without_runs
    assert list_first_cells(mark.text) == list_first_cells(without_runs)


@pytest.mark.parametrize("name", PAGES)
def test_paths_modules_and_links_of_a_page_exist(name):
    text = read_page(name)
    added_files = re.findall(r"^\+\+\+ b/(\S+)", text, re.MULTILINE)  # of docs/extending.md
    paths = {path for path in re.findall(PATH, text) if not OUTPUT.match(path)} - {*added_files}
    assert not {path for path in paths if not (ROOT / path).exists()}
    modules = [Path(ROOT, *module.split(".")) for module in MODULE.findall(text)]
    assert all(
        path.with_suffix(".py").exists() or (path / "__main__.py").exists() for path in modules
    )
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert not [link for link in links if not ((ROOT / name).parent / link).exists()]


def test_every_command_of_the_pages_is_run_or_left_out_with_a_reason():
    """`make test-docs` runs them."""
    declarations, (runnable, other_lines) = commands.read_declarations(), commands.read_commands()
    texts = {command.text for command in [*runnable, *other_lines]}
    assert not [line for line in other_lines if line.text not in declarations.left_out]
    unknown = {*declarations.left_out, *declarations.statuses} - texts
    assert not unknown, "commands.yaml has commands that are on no page"


@pytest.mark.parametrize("record", [StepRecord, RunSummary, Evaluation])
def test_every_field_of_a_run_s_files_has_a_description(record):
    """docs/watching.md has tables of them."""
    assert not [name for name, text in field_tables.describe_fields(record) if not text]
