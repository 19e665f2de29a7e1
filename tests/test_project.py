"""The files of the project itself: they can be read, and say what is true."""

import re
import shlex
import subprocess
import sys

import pytest
import yaml

import rapid
from tests.checkout import ROOT, listed

HOOKS = {
    hook["id"]: hook
    for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repo["hooks"]
}
KINDS = {"python": "*.py", "yaml": "*.yaml"}


def hook(name: str, *files: str) -> int:
    """Run a hook as pre-commit does, with the present environment's tools, and return its status."""
    entry = shlex.split(HOOKS[name]["entry"])
    entry[0:1] = [sys.executable] if entry[0] == "python" else [sys.executable, "-m", entry[0]]
    return subprocess.run([*entry, *files], cwd=ROOT, check=False, capture_output=True).returncode


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_local_and_passes(name):
    assert HOOKS[name]["language"] == "system"
    [kind] = HOOKS[name]["types"]
    files = listed(KINDS[kind])
    assert files and hook(name, *files) == 0


@pytest.mark.parametrize(
    "name, file, content",
    [
        ("ruff-check", "bad.py", "import os\n"),
        ("ruff-format", "bad.py", "x  =  1\n"),
        ("yaml", "bad.yaml", "a: [1\n"),
    ],
)
def test_a_hook_refuses_what_it_is_for(name, file, content, tmp_path):
    (tmp_path / file).write_text(content)
    assert hook(name, str(tmp_path / file)) != 0


def test_continuous_integration_calls_what_anyone_can_call():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in steps
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_what_other_programs_draw_is_ignored_by_git():
    """`dvc plots diff`, and `snakemake --report` with the name that it takes and with the docs'."""
    drawn = ["dvc_plots/index.html", "report.html", "snakemake.html"]
    command = ["git", "check-ignore", *drawn]
    ignored = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert ignored.stdout.split() == drawn


def test_the_citation_has_what_its_format_requires():
    """Citation File Format 1.2.0."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert str(citation["version"]) == rapid.__version__
    [paper] = citation["references"]
    assert {"type", "title", "authors"} <= paper.keys()
    assert all(author.keys() >= {"given-names", "family-names"} for author in paper["authors"])


def test_the_changelog_has_the_present_version():
    releases = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == "Unreleased" and releases[1] == rapid.__version__
