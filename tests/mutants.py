"""Change the code at random, one place at a time, and check whether the fast tests fail.

`make mutants` draws a sample from a seed and writes a line for each mutant into mutants.jsonl. A
mutant with a line is not run again. At the end it prints the share of mutants that were caught, and
the mutants that survived.

The code is changed in a copy of the repository. The files that isolate completions are not changed,
because attacks would then run without isolation.

Exit status: 1 if fewer than 95 % of the mutants are caught.
"""

import argparse
import ast
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

from tests.checkout import ROOT, copy_checkout, list_files

RESULTS = "mutants.jsonl"
# The tests that should fail if a file with this prefix is changed.
AREAS = {
    "rapid/algorithms/": ["tests/algorithms", "tests/training"],
    "rapid/training/": ["tests/training", "tests/algorithms/test_against_trl.py"],
    "rapid/stages/evaluate.py": ["tests/stages"],
    "reports/": ["tests/reports"],
    "rapid/grading/code/": ["tests/grading/code"],
    "rapid/grading/math/": ["tests/grading/math"],
    "rapid/grading/lean/": ["tests/grading/lean"],
    "rapid/grading/": ["tests/grading", "tests/stages"],
}
EXCLUDED = (
    "rapid/grading/code/runner/", "rapid/grading/code/sandbox.py",
    "rapid/grading/memory_cgroups.py", "rapid/grading/permissions.py",
    "rapid/grading/math/worker/__main__.py",
    *(f"rapid/grading/lean/{name}.py" for name in ("install", "launch", "native_sandbox", "process")),
    "rapid/training/trl/vllm.py",  # whose tests are slow
    "reports/plots/",  # colours and positions
)  # fmt: skip
TIMEOUT_SECONDS = 1200  # limit for a mutant; one that runs longer is caught
GOAL = 0.95
SWAPS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"), ast.And: ("and", "or"),
    ast.Or: ("or", "and"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
# Calls that print, draw, parse a command or cache, and change no result.
CALLS_WITHOUT_EFFECT = {
    "ArgumentParser", "PlotStyle", "add_argument", "getLogger", "info", "lru_cache", "print", "tqdm",
    "warn", "warning",
}  # fmt: skip
FUNCTION_SWAPS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "sum": "max", "mean": "sum",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the text from `start` to `end` becomes `new`."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def key(self) -> str:
        """A key of the change and the file's content."""
        text = f"{asdict(self)}{(ROOT / self.file).read_text()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def apply_to(self, source: str) -> str:
        """Return the file's text with the change."""
        return source[: self.start] + self.new + source[self.end :]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old!r} -> {self.new!r}"


def find_mutants(file: str, source: str) -> Iterator[Mutant]:
    """Yield the mutants of a file that are valid Python."""
    lines = source.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]

    def find_offset(line: int, column: int) -> int:  # columns count bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def find_span(node) -> tuple[int, int]:
        start = find_offset(node.lineno, node.col_offset)
        return start, find_offset(node.end_lineno, node.end_col_offset)

    for node in walk_changeable(ast.parse(source)):
        for start, end, new in find_changes(node, source, find_span):
            mutant = Mutant(file, node.lineno, start, end, source[start:end], new)
            try:
                compile(mutant.apply_to(source), file, "exec")
            except SyntaxError:
                continue
            yield mutant


def walk_changeable(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may be changed, without texts, annotations, errors and `strict` of zip."""
    for child in ast.iter_child_nodes(tree):
        if has_no_effect(child):
            continue
        if isinstance(child, ast.JoinedStr | ast.Raise | ast.arg | ast.ImportFrom | ast.Import):
            continue
        if child in (getattr(tree, "annotation", None), getattr(tree, "returns", None)):
            continue
        if isinstance(tree, ast.keyword) and tree.arg == "strict":
            continue
        if hasattr(child, "lineno"):
            yield child
        yield from walk_changeable(child)


def has_no_effect(node: ast.AST) -> bool:
    """Return whether a node is one of the calls without an effect on results."""
    call = node.value if isinstance(node, ast.Expr) else node
    function = call.func if isinstance(call, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", "")) in CALLS_WITHOUT_EFFECT


def find_changes(node, source: str, find_span: Callable) -> Iterator[tuple[int, int, str]]:
    """Yield the changes of a node: start, end and new text."""
    match node:
        case (
            ast.Compare(left=left, ops=[op], comparators=[right])
            | ast.BinOp(left=left, op=op, right=right)
            | ast.BoolOp(op=op, values=[left, right, *_])
        ) if type(op) in SWAPS:
            old, new = SWAPS[type(op)]
            start = source.index(old, find_span(left)[1], find_span(right)[0])
            yield start, start + len(old), new
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield find_span(node)[0], find_span(operand)[0], " "
        case ast.Constant(value=bool(value)):
            yield *find_span(node), str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield *find_span(node), repr(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            start, end = find_span(test)
            yield start, end, f"(not ({source[start:end]}))"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue() | ast.Break():
            yield *find_span(node), "pass"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as func) if (
            name in FUNCTION_SWAPS
        ):
            end = find_span(func)[1]
            yield end - len(name), end, FUNCTION_SWAPS[name]
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            texts = ast.JoinedStr | ast.Constant | ast.List
            if keyword.arg and not isinstance(keyword.value, texts):
                start, end = find_span(keyword)
                yield start, end + source[end:].startswith(","), ""


# Running ------------------------------------------------------------------------------------------


def draw_mutants(count: int, seed: int, area: str = "") -> list[Mutant]:
    """Draw mutants from all files. A smaller sample is the beginning of a larger one."""
    files = [
        name
        for name in sorted(list_files("*.py"))
        if name.startswith(tuple(AREAS)) and name.startswith(area) and not name.startswith(EXCLUDED)
    ]
    candidates = [
        mutant for file in files for mutant in find_mutants(file, (ROOT / file).read_text("utf-8"))
    ]
    random.Random(seed).shuffle(candidates)
    return candidates[:count]


def select_tests(file: str) -> list[str]:
    """Return the tests that should fail if a file is changed, those with its name first."""
    area = next(tests for name, tests in AREAS.items() if file.startswith(name))
    same_name = sorted(
        str(path.relative_to(ROOT))
        for tests in area
        for path in (ROOT / tests).rglob(f"test_{Path(file).stem}*.py")
    )
    return [*same_name, *area]


def run_tests(folder: Path, tests: list[str]) -> str:
    """Run tests until one fails; return its name, "" if none fails, or "time" after a timeout."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory() as temporary, open(folder / "output.txt", "w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment | {"TMPDIR": temporary}, stdout=output,
            stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return "time"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    text = (folder / "output.txt").read_text(errors="replace")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
    return failed[1] if failed else f"status {status}" if status else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="number of mutants in the sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--area", default="", help="only files with this prefix")
    options = parser.parse_args()
    # Without its tests every mutant would seem to be caught, because pytest would fail. An excluded
    # file that was renamed would be changed.
    named_paths = {path for paths in (*AREAS.values(), AREAS, EXCLUDED) for path in paths}
    if missing_paths := sorted(path for path in named_paths if not (ROOT / path).exists()):
        parser.error(f"AREAS or EXCLUDED names missing files: {', '.join(missing_paths)}")
    results = ROOT / RESULTS
    lines = results.read_text().splitlines() if results.exists() else []
    rows_by_key = {row["key"]: row for row in map(json.loads, lines)}
    sample = draw_mutants(options.count, options.seed, options.area)
    if not sample:
        parser.error("there is nothing to change: choose another --area, or a larger --count")
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, open(results, "a") as out:
        copy_checkout(folder := Path(name))
        for number, mutant in enumerate(sample, 1):
            if mutant.key in rows_by_key:
                continue
            source = (ROOT / mutant.file).read_text(encoding="utf-8")
            (folder / mutant.file).write_text(mutant.apply_to(source), encoding="utf-8")
            caught = run_tests(folder, select_tests(mutant.file))
            (folder / mutant.file).write_text(source, encoding="utf-8")
            row = {"key": mutant.key, "mutant": str(mutant), "caught": caught}
            rows_by_key[mutant.key] = row
            print(json.dumps(row), file=out, flush=True)
            print(f"{number}/{len(sample)} {mutant}: {caught or 'SURVIVES'}", flush=True)
    rows = [rows_by_key[mutant.key] for mutant in sample]
    survivors = [row["mutant"] for row in rows if not row["caught"]]
    share = 1 - len(survivors) / len(rows)
    print("\n".join(["", *survivors, f"{share:.1%} of {len(rows)} mutants are caught"]))
    return int(share < GOAL)


if __name__ == "__main__":
    sys.exit(main())
