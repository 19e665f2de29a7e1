"""Layers of imports: each module imports only from lower layers, and no file is long."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.checkout import ROOT, list_files

# Each entry imports only from itself and from later lines. Entries of one line do not import each other.
LAYERS = [
    ["rapid.__main__"],
    ["rapid.cli", "performance"],
    ["rapid.stages", "rapid.preflight", "reports"],
    ["rapid.cost", "rapid.console", "rapid.sampling"],
    ["rapid.errors", "rapid.embedded_models"],
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
    ["rapid"],  # the version; it imports the trainer on access
]
RANKS = {entry: rank for rank, entries in enumerate(LAYERS) for entry in entries}


def find_modules() -> dict[str, Path]:
    files = [
        path for top in ("rapid", "reports", "performance") for path in (ROOT / top).rglob("*.py")
    ]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


MODULES = find_modules()


def read_imports(path: Path) -> set[str]:
    """Return the modules of the project that a file imports, also within its functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.add(inner if inner in MODULES else node.module)
    return names & MODULES.keys()


@cache
def find_imports(name: str) -> set[str]:
    """Return the modules of the project that a module imports, also within its functions."""
    return read_imports(MODULES[name]) - {name}


def get_layer_entry(name: str) -> str:
    """Return the longest entry of LAYERS that contains a module."""
    parts = name.split(".")
    return next(
        prefix for n in range(len(parts), 0, -1) if (prefix := ".".join(parts[:n])) in RANKS
    )


def test_imports_have_no_cycles():
    try:
        list(TopologicalSorter({name: find_imports(name) for name in MODULES}).static_order())
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_a_module_imports_only_from_lower_layers():
    upward_imports = {
        (name, imported_name)
        for name in MODULES.keys() - {"rapid"}
        for imported_name in find_imports(name)
        if get_layer_entry(imported_name) != get_layer_entry(name)
        and RANKS[get_layer_entry(imported_name)] <= RANKS[get_layer_entry(name)]
    }
    assert not upward_imports


def test_the_command_line_and_the_plan_import_no_large_library():
    light_modules = "rapid.cli, rapid.algorithms.variant_names, rapid.config.jobs, reports.plots"
    heavy_libraries = {"torch", "scipy", "pandas", "matplotlib", "datasets"}
    code = f"import sys, {light_modules}; rapid.cli._build_parser(); print(*{heavy_libraries} & {{*sys.modules}})"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT).strip() == b""


def test_each_file_has_at_most_400_lines():
    files = list_files(*(f"*.{kind}" for kind in ("py", "js", "lean", "smk")))
    lengths = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in files}
    assert not {name: length for name, length in lengths.items() if length > 400}
