"""Change the code at random, one place at a time, and see whether the fast tests notice.

`make mutants` draws a sample with a seed and writes a line for each mutant into mutants.jsonl; what
has a line there is not run again. At the end come the share that was caught and what was not.

The code is changed in a copy of the repository. The tests of a mutant run in a child that is forked
from this process, which has imported what they need of others. Walls around completions are left as
they are: attacks would run without them.
"""

import argparse
import ast
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import accumulate
from pathlib import Path

from tests.checkout import ROOT, copy_checkout, listed

RESULTS = "mutants.jsonl"
# Tests that are to notice, by the beginning of a file's path.
AREAS = {
    "rapid/algorithms/": ["tests/algorithms", "tests/training"],
    "rapid/training/": ["tests/training", "tests/algorithms/test_against_trl.py"],
    "rapid/stages/evaluate.py": ["tests/stages"],
    "reports/": ["tests/reports"],
    "rapid/grading/code/": ["tests/grading/code"],
    "rapid/grading/math/": ["tests/grading/math"],
    "rapid/grading/lean/": ["tests/grading/lean", "tests/benchmarks/test_minif2f.py"],
    "rapid/grading/": ["tests/grading", "tests/stages"],
}
LEFT_OUT = (
    "rapid/grading/code/runner/", "rapid/grading/code/sandbox.py", "rapid/grading/limits.py",
    "rapid/grading/policy.py", "rapid/grading/math/worker/__main__.py",
    *(f"rapid/grading/lean/{name}.py" for name in ("box", "install", "launch", "process")),
    "rapid/training/trl/vllm.py",  # whose tests are slow
    "reports/plots/",  # colours and places
)  # fmt: skip
SECONDS = 1200  # of a mutant: what runs longer is caught
GOAL = 0.95
SWAPS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"), ast.And: ("and", "or"),
    ast.Or: ("or", "and"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
# Calls that say something, draw, parse a command or remember: no figure follows from them.
QUIET = {
    "ArgumentParser", "Look", "add_argument", "getLogger", "info", "lru_cache", "print", "tqdm",
    "warn", "warning",
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "max", "mean": "sum"}


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
        """A name that holds as long as the file is as it is."""
        text = f"{asdict(self)}{(ROOT / self.file).read_text()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def of(self, source: str) -> str:
        """Return the file's text with the change."""
        return source[: self.start] + self.new + source[self.end :]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old!r} -> {self.new!r}"


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """Yield the changes of a file, each of which is Python still."""
    lines = source.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]

    def place(line: int, column: int) -> int:  # columns count bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def span(node) -> tuple[int, int]:
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)

    for node in looked_at(ast.parse(source)):
        for start, end, new in changes(node, source, span):
            made = Mutant(file, node.lineno, start, end, source[start:end], new)
            try:
                compile(made.of(source), file, "exec")
            except SyntaxError:
                continue
            yield made


def looked_at(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what may be changed: no words, annotations, errors and no `strict` of zip."""
    for child in ast.iter_child_nodes(tree):
        if is_quiet(child):
            continue
        if isinstance(child, ast.JoinedStr | ast.Raise | ast.arg | ast.ImportFrom | ast.Import):
            continue
        if child in (getattr(tree, "annotation", None), getattr(tree, "returns", None)):
            continue
        if isinstance(tree, ast.keyword) and tree.arg == "strict":
            continue
        if hasattr(child, "lineno"):
            yield child
        yield from looked_at(child)


def is_quiet(node: ast.AST) -> bool:
    """Return whether it is one of the `QUIET` calls."""
    call = node.value if isinstance(node, ast.Expr) else node
    function = call.func if isinstance(call, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", "")) in QUIET


def changes(node, source: str, span: Callable) -> Iterator[tuple[int, int, str]]:
    """Yield the changes of a node: from where, to where, and the new text."""
    match node:
        case (
            ast.Compare(left=left, ops=[op], comparators=[right])
            | ast.BinOp(left=left, op=op, right=right)
            | ast.BoolOp(op=op, values=[left, right, *_])
        ) if type(op) in SWAPS:
            old, new = SWAPS[type(op)]
            start = source.index(old, span(left)[1], span(right)[0])
            yield start, start + len(old), new
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield span(node)[0], span(operand)[0], " "
        case ast.Constant(value=bool(value)):
            yield *span(node), str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield *span(node), repr(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            start, end = span(test)
            yield start, end, f"(not ({source[start:end]}))"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue() | ast.Break():
            yield *span(node), "pass"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as func) if name in NAMES:
            end = span(func)[1]
            yield end - len(name), end, NAMES[name]
    if isinstance(node, ast.Call):
        for given in node.keywords:
            words = ast.JoinedStr | ast.Constant | ast.List
            if given.arg and not isinstance(given.value, words):
                start, end = span(given)
                yield start, end + source[end:].startswith(","), ""


# Running ------------------------------------------------------------------------------------------


def sample(count: int, seed: int, area: str = "") -> list[Mutant]:
    """Return as many mutants, drawn from all files; a smaller sample is the start of a larger."""
    files = [
        name
        for name in sorted(listed("*.py"))
        if name.startswith(tuple(AREAS)) and name.startswith(area) and not name.startswith(LEFT_OUT)
    ]
    every = [one for file in files for one in mutants(file, (ROOT / file).read_text("utf-8"))]
    random.Random(seed).shuffle(every)
    return every[:count]


def tests_of(file: str) -> list[str]:
    """Return the tests that are to notice a change, those of the same name first."""
    area = next(tests for name, tests in AREAS.items() if file.startswith(name))
    own = sorted(
        str(path.relative_to(ROOT))
        for tests in area
        for path in (ROOT / tests).rglob(f"test_{Path(file).stem}*.py")
    )
    return [*own, *area]


def run_tests(folder: Path, tests: list[str]) -> str:
    """Run tests in a child until one fails; return that one, "" where none does, or "time"."""
    said = folder / "failed.txt"
    said.unlink(missing_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    child = os.fork()
    if not child:
        os.setsid()
        with open(folder / "output.txt", "w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.chdir(folder)
        sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
        os.environ |= {"PYTHONPATH": str(folder), "TMPDIR": str(folder / "tmp")}
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "rapid")]:
            del sys.modules[name]
        tempfile.tempdir = None  # asked for anew
        import pytest

        class FirstFailure:
            def pytest_runtest_logreport(self, report):
                if report.failed:
                    said.write_text(report.nodeid)

            def pytest_collectreport(self, report):
                if report.failed:
                    said.write_text(f"{report.nodeid} (collection)")

        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
        status = pytest.main([*options, *tests], plugins=[FirstFailure()])
        if status and not said.exists():
            said.write_text(f"status {status}")
        os._exit(0)
    deadline = time.monotonic() + SECONDS
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            said.write_text("time")
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.1)
    if ended[1] and not said.exists():  # the mutant ended it
        said.write_text(f"status {os.waitstatus_to_exitcode(ended[1])}")
    with suppress(ProcessLookupError):  # what it left behind
        os.killpg(child, signal.SIGKILL)
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    return said.read_text() if said.exists() else ""


def prepare() -> None:
    """Import what tests import of others."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for name in ("datasets", "evalplus.eval", "matplotlib.pyplot", "pandas", "peft", "scipy.stats"):
        import_module(name)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer  # noqa: F401
    from trl import GRPOConfig, GRPOTrainer, SFTTrainer  # noqa: F401

    torch.set_num_threads(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="mutants to have a line for")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--area", default="", help="of files whose path begins so")
    asked = parser.parse_args()
    results = ROOT / RESULTS
    lines = results.read_text().splitlines() if results.exists() else []
    known = {row["key"]: row for row in map(json.loads, lines)}
    drawn = sample(asked.count, asked.seed, asked.area)
    prepare()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, open(results, "a") as out:
        copy_checkout(folder := Path(name))
        for number, one in enumerate(drawn, 1):
            if one.key in known:
                continue
            source = (ROOT / one.file).read_text(encoding="utf-8")
            (folder / one.file).write_text(one.of(source), encoding="utf-8")
            caught = run_tests(folder, tests_of(one.file))
            (folder / one.file).write_text(source, encoding="utf-8")
            known[one.key] = {"key": one.key, "mutant": str(one), "caught": caught}
            print(json.dumps(known[one.key]), file=out, flush=True)
            print(f"{number}/{len(drawn)} {one}: {caught or 'SURVIVES'}", flush=True)
    rows = [known[one.key] for one in drawn]
    alive = [row["mutant"] for row in rows if not row["caught"]]
    share = 1 - len(alive) / len(rows)
    print("\n".join(["", *alive, f"{share:.1%} of {len(rows)} mutants are caught"]))
    return int(share < GOAL)


if __name__ == "__main__":
    sys.exit(main())
