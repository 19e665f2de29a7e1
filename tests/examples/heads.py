"""Reads the examples and what their head docstrings promise."""

import ast
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.conftest import ROOT

FOLDER = ROOT / "examples"
FIELDS = ("Run", "Prints", "Takes", "Smoke")
NUMBER = r"-?\d+(\.\d+)?"


@dataclass(frozen=True)
class Example:
    """A script of examples/ that a person copies."""

    path: Path

    @cached_property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def head(self) -> str:
        return ast.get_docstring(ast.parse(self.source)) or ""

    def read_field(self, name: str) -> list[str]:
        """Return the lines of a field of the head, without indentation."""
        match = re.search(rf"^{name}: +(.*(?:\n +.*)*)", self.head, re.MULTILINE)
        return [line.strip() for line in match[1].splitlines()] if match else []

    @property
    def install_command(self) -> list[str]:
        return shlex.split(self.read_field("Run")[0])

    @property
    def run_command(self) -> str:
        return self.read_field("Run")[1]

    def find_missing_lines(self, output: str) -> list[str]:
        """Return promised lines that the output does not have. X, Y, N stand for numbers."""
        missing = []
        for line in self.read_field("Prints"):
            pattern = re.sub(r"\b[XYN]\b", lambda _: NUMBER, re.escape(line))
            if not re.search(rf"^{pattern}$", output, re.MULTILINE):
                missing.append(line)
        return missing


# smoke.py is what the examples use with --smoke.
EXAMPLES = {
    path.name: Example(path) for path in sorted(FOLDER.glob("*.py")) if path.name != "smoke.py"
}
