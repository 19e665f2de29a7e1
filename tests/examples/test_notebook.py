"""The notebook runs from top to bottom, does what its script does, and has the outputs of a run."""

import ast
import copy
import os
import re

import nbformat
from nbclient import NotebookClient

from tests.conftest import ROOT
from tests.examples.heads import EXAMPLES, FOLDER

NOTEBOOK = nbformat.read(FOLDER / "arithmetic.ipynb", as_version=4)
SCRIPT = EXAMPLES["arithmetic.py"]
SHARED = {"settings", "trainer"}  # names that have the same value in both
# Lines that a smoke run adds to the notebook's parameters.
SMOKE = """
from argparse import Namespace
from smoke import shrink
arguments = Namespace()
settings = shrink(arguments, settings)
model, max_steps = arguments.model, arguments.max_steps
"""


def list_code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def find_parameters(notebook):
    """Return the cell with the tag "parameters"."""
    [cell] = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", ())]
    return cell


def read_outputs(notebook) -> str:
    """Return what the cells printed, and the texts of their last values."""
    outputs = [output for cell in list_code_cells(notebook) for output in cell.outputs]
    texts = [each.get("text") or each.get("data", {}).get("text/plain", "") for each in outputs]
    return "\n".join(texts)


def find_definitions(source: str) -> dict[str, str]:
    """Return the code of functions and of `SHARED` values, by name."""
    definitions = {}
    for node in ast.parse(source.replace("arguments.", "")).body:
        if isinstance(node, ast.FunctionDef):
            definitions[node.name] = ast.unparse(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if ast.unparse(target) in SHARED:
                definitions[ast.unparse(target)] = ast.unparse(node.value)
    return definitions


def test_notebook_is_the_script():
    notebook = "\n".join(cell.source for cell in list_code_cells(NOTEBOOK))
    script = find_definitions(SCRIPT.source)
    assert script == find_definitions(notebook)
    assert {*script} == {"answer_is_last_number", "build_row", *SHARED}
    for name in ("model", "output", "max_steps"):
        [default] = re.findall(rf'"--{name}",.*default=("?[\w/.-]+"?)', SCRIPT.source)
        assert f"\n{name} = {default}\n" in f"\n{find_parameters(NOTEBOOK).source}"


def test_outputs_are_stored_from_one_run_and_name_no_folder():
    cells = list_code_cells(NOTEBOOK)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not SCRIPT.find_missing_lines(read_outputs(NOTEBOOK))
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error"]
    assert not re.search(r"/(home|root|tmp|work|usr)\b|\.venv", nbformat.writes(NOTEBOOK))


def test_figures_of_pages_are_those_of_the_stored_outputs():
    """README.md, the script's head and the notebook's text repeat what the notebook printed."""
    printed = read_outputs(NOTEBOOK)
    [(first, last)] = re.findall(
        r"^mean reward: (.*) in the first batch, (.*) in the", printed, re.M
    )
    minutes = float(re.search(r"'train_runtime': ([\d.]+)", printed)[1]) / 60
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    result = f"`mean reward: {first} in the first batch, {last} in the last`"
    assert f"took {minutes:.0f} minutes and printed {result}" in " ".join(readme.split())
    head = " ".join(SCRIPT.head.split())
    assert f"took {minutes:.0f} minutes" in head
    assert f"a mean reward of {first} in the first batch to {last} in the last" in head
    assert f"a run of {minutes:.0f} minutes" in NOTEBOOK.cells[0].source


def test_notebook_runs(tmp_path, monkeypatch):
    """With the parameters of a smoke run."""
    notebook = copy.deepcopy(NOTEBOOK)
    find_parameters(notebook).source += SMOKE
    for cell in list_code_cells(notebook):
        cell.outputs = []
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(FOLDER)]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert not SCRIPT.find_missing_lines(read_outputs(notebook))
