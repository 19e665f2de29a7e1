"""Who imports whom: data flows one way, and a stranger can read the project from the bottom up."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.checkout import ROOT, listed

# Each imports only from itself and from those after it. On a line: neighbours, which do not.
LAYERS = [
    ["rapid.__main__"],
    ["rapid.cli", "performance"],
    ["rapid.stages", "reports"],
    ["rapid.cost", "rapid.console", "rapid.embedded_models", "rapid.preflight", "rapid.sampling"],
    ["rapid.errors"],
    ["rapid.training", "rapid.vllm_server"],
    ["rapid.processes"],
    ["rapid.resources"],
    ["rapid.config"],
    ["rapid.freshness", "rapid.rewards"],
    ["rapid.benchmarks", "rapid.algorithms"],
    ["rapid.grading"],
    ["rapid.artifacts", "rapid.arguments", "rapid.hub"],
    ["rapid.settings"],
    ["rapid.text"],
    ["rapid"],  # the version; the trainer, when it is asked for
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}


def modules() -> dict[str, Path]:
    files = [
        path for top in ("rapid", "reports", "performance") for path in (ROOT / top).rglob("*.py")
    ]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


MODULES = modules()


@cache
def imported(name: str) -> set[str]:
    """Return the project's modules that one imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return found & MODULES.keys() - {name}


def room(name: str) -> str:
    """Return the room of a module: the longest entry of LAYERS that it lies in."""
    parts = name.split(".")
    return next(prefix for n in range(len(parts), 0, -1) if (prefix := ".".join(parts[:n])) in RANK)


def test_no_modules_import_each_other_in_a_circle():
    try:
        list(TopologicalSorter({name: imported(name) for name in MODULES}).static_order())
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_a_module_imports_only_from_lower_rooms():
    upward = {
        (name, other)
        for name in MODULES.keys() - {"rapid"}
        for other in imported(name)
        if room(other) != room(name) and RANK[room(other)] <= RANK[room(name)]
    }
    assert not upward


def test_a_plan_and_a_command_line_cost_no_large_library():
    light = "rapid.cli, rapid.algorithms.names, rapid.config.jobs, reports.plots"
    heavy = {"torch", "scipy", "pandas", "matplotlib", "datasets"}
    code = f"import sys, {light}; rapid.cli._build_parser(); print(*{heavy} & {{*sys.modules}})"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT).strip() == b""


def test_each_file_is_under_400_lines():
    ours = listed(*(f"*.{kind}" for kind in ("py", "js", "lean", "smk")))
    lengths = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in ours}
    assert not {name: length for name, length in lengths.items() if length > 400}
