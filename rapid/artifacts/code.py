"""Which files of code decide a job's result, and the digest of each.

A job names roots: the module of its stage, its algorithm's, its benchmark's. What these import from
this project counts too, wherever the import stands; it is read from the source, nothing is run.

1. Prose reruns nothing. Python counts by its syntax tree without docstrings, descriptions of
   fields and labels of metrics, a prompt without its comments. Another file counts by its bytes.
   The label and the look of an algorithm or a benchmark count where they are shown, in the report.
2. A registry imports every plug-in, so it is not walked through. Another plug-in is reached only
   from one beside it: dapo.py imports grpo.py.
3. Graders start processes by path, and benchmarks have templates: one file that is reached in such
   a folder stands for all files in it.
4. Code that decides no result is left out: configuration, whose values are in the spec; leases,
   processes, error messages, the console and the command; estimates of cost; where runs report to;
   and the bookkeeping of artifacts, which moves rows to disk and digests them.
   The rows themselves (demonstrations, runs, evaluations) are what a job writes: they count. So
   does what starts several processes, or a server to sample from, for the jobs that have them.
"""

import ast
import hashlib
import re
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Self

from pydantic import Field

from rapid.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("rapid", "reports")
REGISTRIES = ("rapid/algorithms/__init__.py", "rapid/benchmarks/__init__.py")
LEFT_OUT = (
    "rapid/__init__.py",
    "rapid/arguments.py",
    "rapid/cli.py",
    "rapid/config/",
    "rapid/console/",
    "rapid/cost/",
    "rapid/errors/",
    "rapid/freshness.py",
    "rapid/hub.py",
    "rapid/preflight.py",
    "rapid/processes/",
    "rapid/resources/",
    "rapid/settings.py",
    "rapid/vllm_server.py",
    *(f"rapid/artifacts/{name}.py" for name in ("code", "files", "layout", "manifests")),
    "rapid/stages/reporting.py",
    *REGISTRIES,
)
WHOLE = re.compile(r"reports/|rapid/(benchmarks|grading)/[^/]+/")
PLUG_INS = ("rapid/algorithms/", "rapid/benchmarks/")
SHOWN = ("label", "look")  # what a plug-in's class says for reports
PROSE = ("description", "label", "unit", "better")  # what fields and metrics say for readers
OF_REPORTS = (".py", ".j2", ".css", ".yaml")  # reports/ has outputs too


class Spec(Settings):
    """What decides a job's result: its parameters, and the code that they are given to."""

    code: str = Field("", description="digest of the code; empty where nobody asked for it")

    def files(self) -> dict[str, str]:
        """Return the digest of each file of code that decides the result."""
        raise NotImplementedError

    def with_code(self) -> Self:
        """Return the spec with the digest of the code that is here now."""
        text = "\n".join(f"{file} {digest}" for file, digest in self.files().items())
        return self.model_copy(update={"code": hashlib.sha256(text.encode()).hexdigest()})


@cache
def files_behind(
    *roots: str,
    without: tuple[str, ...] = (),
    through: tuple[str, ...] = PACKAGES,
    shown: bool = False,
) -> dict[str, str]:
    """Return the digest of each file that modules depend on, by its path in the project.

    A file is read once in a process, when it is first asked for: what runs is what was read, also
    where somebody edits it meanwhile.

    Args:
        roots: names of modules, and paths of other files. These count wherever they lie.
        without: beginnings of paths that are left out.
        through: beginnings of the paths whose imports count.
        shown: count what plug-ins say for reports.
    """
    plug_ins = {registry: set(_read(registry, shown)[1]) for registry in REGISTRIES}
    asked = {root if "/" in root else _file_of(root) for root in roots}
    left = [file for root in asked for file in _with_folder(root)]
    found = set()
    while left:
        file = left.pop()
        if file in found or (file not in asked and file.startswith((*LEFT_OUT, *without))):
            continue
        found.add(file)
        for target in _read(file, shown)[1] if file.startswith(through) else ():
            foreign = any(
                target in names and not file.startswith(f"{Path(registry).parent}/")
                for registry, names in plug_ins.items()
            )
            left += [] if foreign else _with_folder(target)
    return {file: _read(file, shown)[0] for file in sorted(found)}


def _file_of(module: str) -> str:
    """Return the path of a module of this project, "" of any other."""
    path = module.replace(".", "/")
    for file in (f"{path}.py", f"{path}/__init__.py"):
        if module.split(".")[0] in PACKAGES and (ROOT / file).is_file():
            return file
    return ""


def _with_folder(file: str) -> list[str]:
    """Return the file, or all files of the folder that it stands for."""
    if folder := WHOLE.match(file):
        return _inside(folder[0])
    return [file] if file else []


@cache
def _inside(folder: str) -> list[str]:
    """Return the files that count of a folder."""
    inside = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    relative = [path.relative_to(ROOT) for path in inside]
    return [path.as_posix() for path in relative if _counts(path)]


def _counts(path: Path) -> bool:
    """Return whether a file in such a folder is part of it, and no cache, copy or output."""
    if any(part.startswith((".", "__pycache__")) for part in path.parts):
        return False
    return path.suffix in OF_REPORTS if path.parts[0] == "reports" else path.name[-1] != "~"


@cache
def _read(file: str, shown: bool) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a file, and the files of this project that it imports."""
    digest, names = _parsed((ROOT / file).read_bytes(), file, shown)
    imported = (_file_of(name) or _file_of(source) for name, source in names)
    return digest, tuple(filter(None, imported))


@cache
def _parsed(content: bytes, file: str, shown: bool) -> tuple[str, list[tuple[str, str]]]:
    """Return the digest of a file with this content, and the names that it imports."""
    names = []
    if file.endswith(".py"):
        tree = ast.parse(content, file)
        names = _imported(tree, ".".join(Path(file).parent.parts))
        if not shown and file.startswith(PLUG_INS):
            _leave_out_shown(tree)
        content = _without_prose(tree).encode()
    elif file.endswith(".txt.j2"):
        content = _without_comments(content.decode()).encode()
    return hashlib.sha256(content).hexdigest(), names


def _imported(tree: ast.Module, package: str) -> list[tuple[str, str]]:
    """Return the names that a package's module imports, which may be modules, and whose they are.

    The second is the module that a name is imported from, or nothing.
    """
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            names += [(f"{source}.{alias.name}", source) for alias in node.names]
    return names


def _leave_out_shown(tree: ast.Module) -> None:
    """Take what is for reports out of a plug-in's classes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            node.body = [
                each
                for each in node.body
                if not (isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) in SHOWN)
            ]


def _without_prose(tree: ast.Module) -> str:
    """Return a syntax tree as text, without docstrings and what fields say for readers."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Module(body=[ast.Expr(ast.Constant(str())), *rest])
                | ast.ClassDef(body=[ast.Expr(ast.Constant(str())), *rest])
                | ast.FunctionDef(body=[ast.Expr(ast.Constant(str())), *rest])
                | ast.AsyncFunctionDef(body=[ast.Expr(ast.Constant(str())), *rest])
            ):
                node.body = rest
            case ast.Call(func=ast.Name("Field" | "Metric"), keywords=keywords):
                node.keywords = [keyword for keyword in keywords if keyword.arg not in PROSE]
            case ast.JoinedStr(values=parts):  # Python 3.12 ends some with an empty one
                node.values = [part for part in parts if getattr(part, "value", None) != ""]
    return ascii(_plain(tree))


def _plain(node: object) -> object:
    """Return a syntax tree as tuples of types, names and values, the same in all Pythons.

    `ast.unparse` quotes f-strings otherwise since Python 3.12, and each version adds fields that
    are empty.
    """
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        return type(node).__name__, *((name, _plain(value)) for name, value in fields)
    return tuple(map(_plain, node)) if isinstance(node, list) else node


def _without_comments(template: str) -> str:
    """Return a prompt's template as Jinja cuts it up, without comments."""
    from jinja2 import Environment

    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    tokens = environment.lex(template)
    return "".join(text for _, kind, text in tokens if not kind.startswith("comment"))
