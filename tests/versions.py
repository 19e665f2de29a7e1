"""Test the library with the oldest and the newest packages that pyproject.toml admits.

    make test-versions                     all of the below
    make test-versions WRITE=1             the same, recorded for the tables of docs/versions.md
    python -m tests.versions lowest        the library's tests with the lowest versions
    python -m tests.versions newest        the library's tests with the newest versions
    python -m tests.versions python3.12    the wheel with the newest versions on one Python

The environments are folders in .versions/, apart from .venv. A later call brings them up to date,
which takes seconds if the same versions are resolved. With `--record` each part that passed is
recorded in performance/results/versions.json.

The environments of `lowest` and `newest` have the extras `graders` and `peft`. In them run all quick
tests of the packages that `RapidTrainer` and `rapid.rewards` consist of, and the examples, from the
wheel. `python3.12` first has the wheel alone, and then the wheel with the extra `graders`.
Exit status: 1 if a part fails.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rapid.artifacts.files import write_text
from rapid.artifacts.manifests import describe_hardware, get_commit
from rapid.text import render_markdown_table, shorten_commit
from tests.checkout import ROOT
from tests.release import build_distributions
from tests.test_install import install
from tests.test_layers import read_imports
from tests.test_library import BASE, EXTRAS, find_imported_modules

FOLDER = ROOT / ".versions"
RECORD = "performance/results/versions.json"
LOCK = ROOT / "requirements/cpu.txt"
TOOLS = ("hypothesis", "pytest", "pytest-xdist")  # in the lock's versions
LIBRARY = ("rapid.training.trainer", "rapid.rewards")
PYTHONS = ("3.11", "3.12", "3.13")


class Part(NamedTuple):
    """An environment and the tests that run in it."""

    python: str
    resolution: str  # uv's --resolution: which versions are preferred
    extras: tuple[tuple[str, ...], ...]  # installed one after the other, each followed by examples
    runs_tests: bool


PARTS = {
    "lowest": Part(PYTHONS[0], "lowest-direct", (("graders", "peft"),), runs_tests=True),
    "newest": Part(PYTHONS[-1], "highest", (("graders", "peft"),), runs_tests=True),
    **{
        f"python{version}": Part(version, "highest", ((), ("graders",)), runs_tests=False)
        for version in PYTHONS
    },
}


def select_tests() -> tuple[list[str], list[str]]:
    """Return the tests of the library, and those that are left out because they need the pipeline.

    The library's packages are those of the modules that LIBRARY imports. Its tests mirror them:
    tests/training, tests/test_rewards.py. A file that also imports another package of the project,
    such as `reports`, needs the pipeline's requirements.
    """
    modules = {module for root in LIBRARY for module in find_imported_modules(root)}
    packages = {get_package(module) for module in modules}
    files: set[Path] = set()
    for package in packages - {"rapid"}:
        name = package.removeprefix("rapid.")
        files |= {*ROOT.glob(f"tests/{name}/**/test_*.py"), *ROOT.glob(f"tests/test_{name}*.py")}
    selected, left_out = [], []
    for file in sorted(files):
        imported = {get_package(module) for module in read_imports(file)}
        (selected if imported <= packages | {"rapid"} else left_out).append(
            str(file.relative_to(ROOT))
        )
    return selected, left_out


def get_package(module: str) -> str:
    """Return the first two parts of a module's name: rapid.training of rapid.training.config."""
    return ".".join(module.split(".")[:2])


def find_python(version: str) -> str:
    """Return a Python of this version that runs, or else the version, so that uv looks for it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")]
    for program in filter(None, installed):
        if not subprocess.run([program, "-c", ""], check=False, capture_output=True).returncode:
            return str(program)
    return version


class Environment:
    """An environment with this project's wheel and what the wheel requires.

    Args:
        name: the name of the part and of the environment's folder.
    """

    def __init__(self, name: str):
        self.part, self.folder = PARTS[name], FOLDER / name
        self.python = self.folder / "bin/python"
        if not self.python.exists():
            FOLDER.mkdir(exist_ok=True)
            command = ["-m", "uv", "venv", "--clear", "--python", find_python(self.part.python)]
            subprocess.run([sys.executable, *command, self.folder], check=True)
        self.uv = install.Uv(sys.executable, install.read_pin("uv", LOCK), str(self.python))

    def resolve(self, extras: tuple[str, ...]) -> tuple[Path, dict[str, str]]:
        """Write a file with the packages and their versions. torch is its CPU build if uv finds one.

        Returns:
            The file, and the environment variables with which uv finds all packages.
        """
        inputs, pins = (FOLDER / f"{self.folder.name}.{kind}" for kind in ("in", "txt"))
        tools = [install.read_pin(tool, LOCK) for tool in TOOLS] if self.part.runs_tests else []
        command = ["compile", "--quiet", "--upgrade", "--resolution", self.part.resolution]
        command += ["--python-version", self.part.python, "--output-file", str(pins), str(inputs)]
        command += ["pyproject.toml", *(f"--extra={extra}" for extra in extras)]

        def compile_pins(*requirements: str, **variables: str) -> None:
            inputs.write_text("".join(f"{line}\n" for line in (*tools, *requirements)))
            if not self.uv.run_pip(*command, **variables):
                sys.exit(f"{self.folder.name} cannot be resolved, see above")

        compile_pins()
        torch = install.read_pin("torch", pins)
        variables = self.uv.find_cpu_build(torch)
        if variables is None:
            print(f"No CPU build of {torch} was found: PyPI's has CUDA libraries", flush=True)
            return pins, {}
        compile_pins(f"{torch}+cpu", **variables)
        return pins, variables

    def install(self, wheel: Path, extras: tuple[str, ...]) -> dict[str, str]:
        """Install the wheel and exactly what it requires, and return all versions by name."""
        pins, variables = self.resolve(extras)
        target = ("--python", str(self.python))
        if not (
            self.uv.run_pip("sync", *target, str(pins), **variables)
            and self.uv.install_packages("--no-deps", str(wheel))
        ):
            sys.exit(f"{self.folder.name} cannot be installed, see above")
        lines = re.findall(r"^([\w.-]+)==([\w.+]+)", pins.read_text(), re.MULTILINE)
        return {canonicalize_name(name): version for name, version in lines}

    def run_tests(self, workers: int) -> tuple[bool, dict]:
        """Run the library's tests; return whether they pass, and a record with their counts."""
        results = FOLDER / f"{self.folder.name}.xml"
        results.unlink(missing_ok=True)
        command = [self.python, "-m", "pytest", "-q", "-m", "not slow and not gpu"]
        command += ["-p", "no:cacheprovider", f"--junitxml={results}", f"--numprocesses={workers}"]
        selected, left_out = select_tests()
        command += ["--dist", "loadfile", "--no-loadscope-reorder", *selected]
        with tempfile.TemporaryDirectory() as folder:  # pytest keeps three runs in a shared folder
            environment = os.environ | {"PYTEST_DEBUG_TEMPROOT": folder}
            status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        skipped: Counter[str] = Counter()
        passed = 0
        for case in ElementTree.parse(results).iter("testcase"):
            outcomes = {child.tag: child.get("message", "") for child in case}
            if "skipped" in outcomes:
                skipped[outcomes["skipped"]] += 1
            passed += not outcomes.keys() & {"skipped", "failure", "error"}
        counts = {"passed": passed, "skipped": dict(sorted(skipped.items()))}
        return status == 0, counts | {"left_out": left_out}

    def run_examples(self, extras: tuple[str, ...]) -> bool:
        """Run the tests of the examples and commands of the wheel, and return whether all pass.

        pytest itself runs in the environment of this file, which also makes the model.
        """
        expression = "graders" if "graders" in extras else "without_extras"
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow", "-k", expression]
        variable = {"RAPID_WHEEL_PROGRAMS": str(self.python.parent)}
        ended = subprocess.run(
            [sys.executable, *command, "tests/test_library.py"],
            cwd=ROOT, env=os.environ | variable, check=False,
        )  # fmt: skip
        return ended.returncode == 0


def run_part(name: str, wheel: Path, workers: int) -> dict | None:
    """Run a part, and return its record, or None if it failed."""
    environment, record = Environment(name), {}
    for extras in environment.part.extras:
        print(f"{name}: {', '.join(extras) or 'the wheel alone'}", flush=True)
        packages = environment.install(wheel, extras)
        if not environment.run_examples(extras):
            return None
    if environment.part.runs_tests:
        passed, record = environment.run_tests(workers)
        if not passed:
            return None
    version = "import platform; print(platform.python_version())"
    python = subprocess.check_output([environment.python, "-c", version], text=True).strip()
    return {
        "python": python,
        "bounds": read_bounds(),
        "packages": {
            package: packages[package] for package in read_bounds() if package in packages
        },
        **record,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": get_commit(),
        "hardware": describe_hardware(),
    }


def read_bounds() -> dict[str, str]:
    """Return the bounds of pyproject.toml for each package of the trainer and the rewards."""
    lines = [*BASE, *EXTRAS["graders"], *EXTRAS["peft"]]
    names = [Requirement(line).name for line in lines]
    return {
        canonicalize_name(name): line.removeprefix(name)
        for name, line in zip(names, lines, strict=True)
    }


def read_record() -> dict[str, dict]:
    """Return the last record of each part that passed."""
    path = ROOT / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def tested_versions(text: str, root: Path) -> str:
    """Return tables of the versions that were tested, and of what was tested with them."""
    record = read_record()
    tested = [name for name in ("lowest", "newest") if name in record]
    versions = [
        [package, f"`{bounds}`", *(record[name]["packages"][package] for name in tested)]
        for package, bounds in read_bounds().items()
    ]
    heads = ["package", "in pyproject.toml", *(f"{name} tested" for name in tested)]
    parts = [[name, *render_part(part)] for name, part in record.items()]
    part_heads = ["part", "Python", "torch", "passed", "skipped", "date and commit"]
    skipped = {
        reason: count
        for name in tested
        for reason, count in record[name].get("skipped", {}).items()
    }
    reasons = [f"{count}: {reason}" for reason, count in sorted(skipped.items())]
    left_out = sorted({f"`{file}`" for name in tested for file in record[name]["left_out"]})
    lists = [
        f"{head}\n\n" + "".join(f"- {line}\n" for line in lines or ["none"])
        for head, lines in (
            ("Tests that were skipped, with the reason:", reasons),
            ("Files that were left out, because they test the pipeline too:", left_out),
        )
    ]
    tables = [render_markdown_table(heads, versions), render_markdown_table(part_heads, parts)]
    return "\n" + "\n".join([*tables, *lists])


def render_part(part: dict) -> list[str]:
    """Return the cells of a part's row, after its name."""
    return [
        part["python"],
        part["packages"]["torch"],
        str(part.get("passed", "examples")),
        str(sum(part.get("skipped", {}).values())),
        f"{part['date'][:10]}, {shorten_commit(part['commit'], 7)}",
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("--record", action="store_true", help=f"write what passed into {RECORD}")
    options = parser.parse_args(arguments)
    if unknown := {*options.parts} - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    wheel, _ = build_distributions(FOLDER / "dist")
    failed = []
    for name in options.parts or PARTS:
        part = run_part(name, wheel, options.workers)
        print(f"{name}: {'failed' if part is None else 'passed'}", flush=True)
        if part is None:
            failed.append(name)
        elif options.record:
            record = read_record() | {name: part}
            ordered = {name: record[name] for name in PARTS if name in record}
            write_text(ROOT / RECORD, json.dumps(ordered, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
