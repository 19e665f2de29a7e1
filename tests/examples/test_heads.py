"""Examples are short, stand alone, and say in their heads how to run them; README.md lists them."""

import ast
import sys
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.examples.heads import EXAMPLES, FIELDS, FOLDER
from tests.test_library import BASE, EXTRAS, find_required_distributions

README = (FOLDER / "README.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.parametrize("name", EXAMPLES)


def find_imports(source: str) -> set[str]:
    """Return the modules that a script imports."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    return modules


def test_length_is_40_to_80_lines(name):
    assert 40 <= len(EXAMPLES[name].source.splitlines()) <= 80


def test_head_has_every_field_and_names_its_file(name):
    example = EXAMPLES[name]
    assert all(example.read_field(field) for field in FIELDS)
    assert "What it shows: " in example.head
    assert name in example.run_command
    assert f'"output/{name.removesuffix(".py")}"' in example.source


def test_install_command_brings_every_import(name):
    example = EXAMPLES[name]
    assert example.install_command[:2] == ["pip", "install"]
    requirements = [Requirement(text) for text in example.install_command[2:]]
    [own] = [each for each in requirements if each.name == "rapid-rl"]
    lines = [*BASE, *(line for extra in own.extras for line in EXTRAS[extra])]
    installed = find_required_distributions([*lines, *map(str, set(requirements) - {own})])
    by_package = packages_distributions()
    for module in find_imports(example.source) - {"smoke"}:
        package = module.split(".")[0]
        if package not in {"rapid", *sys.stdlib_module_names}:
            assert {canonicalize_name(each) for each in by_package[package]} & installed, module
    assert ("graders" in own.extras) == ("rapid.rewards" in example.source)


def test_only_the_public_interface_is_imported(name):
    modules = find_imports(EXAMPLES[name].source)
    assert {module for module in modules if module.startswith("rapid")} <= {
        "rapid",
        "rapid.rewards",
    }
    assert not {module.split(".")[0] for module in modules} & {"tests", "reports", "performance"}


def test_readme_has_its_command_and_what_it_shows(name):
    [row] = [line for line in README.splitlines() if line.startswith(f"| [{name}]({name}) ")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 3 and all(cells)
    assert cells[2].strip("`") == EXAMPLES[name].run_command.split(", ")[0]
