"""The documents name what exists, in lines that fit a screen."""

import re
from pathlib import Path

import pytest

from rapid.artifacts.evaluations import Evaluation, ProblemScore
from rapid.artifacts.runs import RunSummary, Runtime, StepRecord
from tests import commands
from tests.conftest import ROOT

FOLDERS_OF_PAGES = (ROOT, ROOT / "config", ROOT / "docs")
PAGES = sorted(
    str(path.relative_to(ROOT)) for folder in FOLDERS_OF_PAGES for path in folder.glob("*.md")
)
FOLDERS = "rapid|reports|performance|tests|docs|workflow|experiments|requirements"
SOURCE = rf"`((?:{FOLDERS})/[\w/.-]*(?:\.(?:py|md|smk|js|lean|yaml|yml|j2|txt|css)|/))`"
OURS = re.compile(rf"python -m ((?:{FOLDERS})\b[\w.]*)")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_page_names_exist(name):
    """Other than outputs, and what docs/extending.md adds."""
    added = re.findall(r"^\+\+\+ b/(\S+)", text(name), re.MULTILINE)
    outputs = re.compile(
        r"(experiments/\w+/)?reports/.*(tables|appendix)\.txt|(reports|experiments)/\w+/$|.*NAME"
    )
    paths = {path for path in re.findall(SOURCE, text(name)) if not outputs.match(path)}
    assert not {path for path in paths - {*added} if not (ROOT / path).exists()}


@pytest.mark.parametrize("name", PAGES)
def test_modules_that_a_page_runs_and_links_lead_somewhere(name):
    modules = [Path(ROOT, *module.split(".")) for module in OURS.findall(text(name))]
    found = [
        path.with_suffix(".py").exists() or (path / "__main__.py").exists() for path in modules
    ]
    assert all(found), modules
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text(name))
    assert not [link for link in links if not ((ROOT / name).parent / link).exists()]


@pytest.mark.parametrize("name", PAGES)
def test_lines_fit(name):
    """100 columns, and in a diff one more."""
    lines = text(name).splitlines()
    assert not [line for line in lines if len(line) > 100 + line.startswith(("+", "-"))]


def test_every_command_of_the_pages_is_run_or_left_out_with_a_reason():
    declared, (read, others) = commands.read_declared(), commands.read_commands()
    texts = {command.text for command in [*read, *others]}
    assert not [line for line in others if line.text not in declared.left_out]
    assert {*declared.left_out, *declared.statuses} <= texts, "what is declared is on no page"


def test_commands_are_read_from_indented_blocks():
    page = (
        "Say\n\n    $ rapid plan --gpu \\\n        h100    # a GPU\n    made of it\n\n    1 + 1\n"
    )
    assert commands.extract_commands(page) == (["rapid plan --gpu h100"], ["made of it"])


@pytest.mark.parametrize("record", [StepRecord, RunSummary, Runtime, Evaluation, ProblemScore])
def test_every_field_of_a_run_s_files_is_explained(record):
    page = text("docs/watching.md")
    assert not [name for name in record.model_fields if f"`{name}`" not in page]
