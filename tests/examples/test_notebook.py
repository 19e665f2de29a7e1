"""The notebook runs from top to bottom, does what its script does, and has its outputs."""

import ast
import os
import re

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT
from tests.examples.heads import EXAMPLES, FOLDER

NOTEBOOK = nbformat.read(FOLDER / "arithmetic.ipynb", as_version=4)
CODE = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code"]
SCRIPT = EXAMPLES["arithmetic.py"]


def find_definitions(source: str) -> dict[str, str]:
    """Return the code of functions and of the names that a script and its notebook share."""
    source = source.replace("arguments.", "")
    definitions = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            definitions[node.name] = ast.unparse(node)
        elif isinstance(node, ast.Assign) and node.targets[0].id in (
            "settings",
            "trainer",
            "rewards",
        ):
            definitions[node.targets[0].id] = ast.unparse(node)
    return definitions


def test_notebook_is_the_script():
    script, notebook = (
        find_definitions(source) for source in (SCRIPT.source, "\n".join(c.source for c in CODE))
    )
    assert notebook.pop("rewards")  # of the rows that are plotted
    assert script.pop("rewards")
    assert script == notebook
    assert {*script} == {"answer_is_last_number", "ask", "settings", "trainer"}
    [parameters] = [c.source for c in CODE if "parameters" in c.metadata.get("tags", ())]
    for name, kind in {"model": "default", "output": "default", "max_steps": "default"}.items():
        [default] = re.findall(rf'"--{name}",.*{kind}=("?[\w/.-]+"?)', SCRIPT.source)
        assert f"\n{name} = {default}\n" in f"\n{parameters}"


def test_outputs_are_stored_from_one_run_and_name_no_folder():
    assert [cell.execution_count for cell in CODE] == list(range(1, len(CODE) + 1))
    outputs = [output for cell in CODE for output in cell.outputs]
    texts = "".join(output.get("text", "") for output in outputs)
    assert not SCRIPT.match_promised_lines(texts)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error"]
    assert not re.search(r"/(home|root|tmp|work|usr|venv)\b|\.venv", nbformat.writes(NOTEBOOK))


@pytest.mark.parametrize("stored", [NOTEBOOK], ids=["arithmetic.ipynb"])
def test_notebook_runs(stored, tmp_path, monkeypatch):
    """In place of its parameters it gets those of a smoke run."""
    notebook = nbformat.from_dict(stored)
    [cell] = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", ())]
    cell.source += "\n".join(
        [
            "\nfrom argparse import Namespace",
            "from smoke import shrink",
            "arguments = Namespace()",
            "settings = shrink(arguments, settings)",
            "model, max_steps = arguments.model, arguments.max_steps",
        ]
    )
    path = os.pathsep.join([str(ROOT), str(FOLDER)])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    output = "".join(
        each.get("text", "") for cell in notebook.cells for each in cell.get("outputs", ())
    )
    assert not SCRIPT.match_promised_lines(output)
