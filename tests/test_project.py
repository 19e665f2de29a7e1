"""Files of the project that other programs read."""

import re
import shlex
import subprocess
import sys

import pytest
import yaml

import rapid
from tests.checkout import ROOT, list_files

HOOKS = {
    hook["id"]: hook
    for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repo["hooks"]
}
PATTERNS = {"python": "*.py", "yaml": "*.yaml"}
BAD_FILES = {
    "ruff-check": ("bad.py", "import os\n"),
    "ruff-format": ("bad.py", "x  =  1\n"),
    "yaml": ("bad.yaml", "a: [1\n"),
}


def run_hook(name: str, *files: str) -> int:
    """Run a hook as pre-commit does, with the present environment's tools, and return its status."""
    entry = shlex.split(HOOKS[name]["entry"])
    entry[0:1] = [sys.executable] if entry[0] == "python" else [sys.executable, "-m", entry[0]]
    return subprocess.run([*entry, *files], cwd=ROOT, check=False, capture_output=True).returncode


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_accepts_the_project_and_refuses_a_bad_file(name, tmp_path):
    assert HOOKS[name]["language"] == "system"
    [file_type] = HOOKS[name]["types"]
    files = list_files(PATTERNS[file_type])
    assert files and run_hook(name, *files) == 0
    file, content = BAD_FILES[name]
    (tmp_path / file).write_text(content)
    assert run_hook(name, str(tmp_path / file)) != 0


def test_continuous_integration_runs_an_executable_script():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in steps
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_git_ignores_files_that_other_programs_draw():
    """`dvc plots diff`, and `snakemake --report` with its own name and the documents'."""
    drawn_files = ["dvc_plots/index.html", "report.html", "snakemake.html"]
    command = ["git", "check-ignore", *drawn_files]
    ignored = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert ignored.stdout.split() == drawn_files


def test_citation_and_changelog_have_the_current_version():
    """The fields are those of Citation File Format 1.2.0."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert str(citation["version"]) == rapid.__version__
    [paper] = citation["references"]
    assert {"type", "title", "authors"} <= paper.keys()
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    releases = [heading for heading in headings if heading != "Unreleased"]
    assert releases[0] == rapid.__version__
