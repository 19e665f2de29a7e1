"""Finds and hashes the source files that decide a job's result.

A job's root modules are its stage, its algorithm and its benchmark. Their imports within this
project are followed, including imports in functions. Imports are read from the source; no code is
run.

1. A change of prose makes no job stale. A Python file is hashed as its syntax tree, without
   docstrings and descriptions of fields; a prompt's template without its comments; any other file
   as its bytes. What only reports print or draw is hashed for reports only: titles of fields, the
   label, unit and direction (`better`) of a metric, and the label and plot style of an algorithm or
   a benchmark.
2. The imports of a registry (`REGISTRIES`) are not followed, because it imports all algorithms or
   benchmarks (plug-ins). A plug-in is hashed if it is a root, or if another plug-in in its folder
   imports it, as naive_grpo.py imports grpo.py.
3. Imports do not reach all files of graders, which start processes by path, and of benchmarks,
   which have templates. So if one file in the folder of a grader or a benchmark is reached, all
   files of the folder are hashed. The same holds for reports/, which has templates and YAML files.
4. Code that decides no result is excluded (`EXCLUDED`): configuration, whose values are in the
   spec; leases of cores, processes, error messages, the console and the command line; estimates of
   cost; reporting services and what a run prints; and the reading, writing and hashing of
   artifacts. The schemas of artifacts (demonstrations, runs, evaluations) are hashed. The code that
   starts several processes or a vLLM server is hashed for the jobs that use it.
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
PACKAGES = ("rapid", "reports")  # the packages of this project whose imports are followed
REGISTRIES = ("rapid/algorithms/__init__.py", "rapid/benchmarks/__init__.py")
# Prefixes of paths that are hashed only if they are roots (4. above).
EXCLUDED = (
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
    "rapid/training/overview.py",
    *REGISTRIES,
)
# Folders whose files are all hashed if one is reached (3. above).
WHOLE_FOLDER = re.compile(r"reports/|rapid/(benchmarks|grading)/[^/]+/")
PLUG_IN_FOLDERS = ("rapid/algorithms/", "rapid/benchmarks/")
REPORT_ATTRIBUTES = ("label", "plot_style")  # of a plug-in's class; only reports use them
# Keyword arguments of Field(...) and Metric(...) that only reports use.
REPORT_KEYWORDS = ("title", "label", "unit", "better")
REPORT_SUFFIXES = (".py", ".j2", ".css", ".yaml")  # of sources in reports/, which has outputs too


class Spec(Settings):
    """The parameters and the code that decide a job's result."""

    code: str = Field("", description="digest of the code; empty until `with_code_digest` sets it")

    def hash_code_files(self) -> dict[str, str]:
        """Return the digest of each file of code that decides the result, by its path."""
        raise NotImplementedError

    def with_code_digest(self) -> Self:
        """Return the spec with the digest of the present code."""
        text = "\n".join(f"{file} {digest}" for file, digest in self.hash_code_files().items())
        return self.model_copy(update={"code": hashlib.sha256(text.encode()).hexdigest()})


@cache
def hash_dependencies(
    *roots: str,
    excluded: tuple[str, ...] = (),
    follow: tuple[str, ...] = PACKAGES,
    for_reports: bool = False,
) -> dict[str, str]:
    """Return the SHA-256 of each source file that the roots depend on, by its path in the project.

    Digests are cached, so that they are those of the code that this process runs even if a file is
    edited afterwards.

    Args:
        roots: names of modules, and paths of other files. Roots are never excluded.
        excluded: prefixes of paths to leave out, in addition to `EXCLUDED`.
        follow: prefixes of the paths whose imports are followed.
        for_reports: include what only reports use (1. above).
    """
    plug_ins = {  # the files that each registry imports
        registry: set(_load_file(registry, for_reports)[1]) for registry in REGISTRIES
    }
    root_files = {root if "/" in root else _find_module_file(root) for root in roots}
    queue = [file for root in root_files for file in _expand_file(root)]
    reached_files = set()
    while queue:
        file = queue.pop()
        if file in reached_files or (
            file not in root_files and file.startswith((*EXCLUDED, *excluded))
        ):
            continue
        reached_files.add(file)
        _, imported_files = _load_file(file, for_reports)
        for target in imported_files if file.startswith(follow) else ():
            # An import of a plug-in is not followed from outside the plug-in's folder (2. above).
            is_ignored = any(
                target in plug_in_files and not file.startswith(f"{Path(registry).parent}/")
                for registry, plug_in_files in plug_ins.items()
            )
            queue += [] if is_ignored else _expand_file(target)
    return {file: _load_file(file, for_reports)[0] for file in sorted(reached_files)}


def _find_module_file(module: str) -> str:
    """Return the path of a module of this project; "" for a module of another package."""
    path = module.replace(".", "/")
    for file in (f"{path}.py", f"{path}/__init__.py"):
        if module.split(".")[0] in PACKAGES and (ROOT / file).is_file():
            return file
    return ""


def _expand_file(file: str) -> list[str]:
    """Return the file, or all files of its folder if `WHOLE_FOLDER` matches; [] for ""."""
    if folder := WHOLE_FOLDER.match(file):
        return _list_folder_files(folder[0])
    return [file] if file else []


@cache
def _list_folder_files(folder: str) -> list[str]:
    """List the source files of a folder."""
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    paths = [path.relative_to(ROOT) for path in files]
    return [path.as_posix() for path in paths if _is_source_file(path)]


def _is_source_file(path: Path) -> bool:
    """Return whether a file is a source, not a cache, hidden file, editor's copy or report."""
    if any(part.startswith((".", "__pycache__")) for part in path.parts):
        return False
    return path.suffix in REPORT_SUFFIXES if path.parts[0] == "reports" else path.name[-1] != "~"


@cache
def _load_file(file: str, for_reports: bool) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a file, and the files of this project that it imports."""
    digest, imports = _parse_source((ROOT / file).read_bytes(), file, for_reports)
    # `from a import b` imports the module a.b, or else a name from the module a.
    imported_files = (
        _find_module_file(name) or _find_module_file(source) for name, source in imports
    )
    return digest, tuple(filter(None, imported_files))


@cache
def _parse_source(
    content: bytes, file: str, for_reports: bool
) -> tuple[str, list[tuple[str, str]]]:
    """Return the digest of a file with this content, and its imports (`_list_imports`)."""
    imports = []
    if file.endswith(".py"):
        tree = ast.parse(content, file)
        imports = _list_imports(tree, ".".join(Path(file).parent.parts))
        if not for_reports and file.startswith(PLUG_IN_FOLDERS):
            _remove_report_attributes(tree)
        content = _dump_without_prose(tree, for_reports).encode()
    elif file.endswith(".txt.j2"):
        content = _strip_comments(content.decode()).encode()
    return hashlib.sha256(content).hexdigest(), imports


def _list_imports(tree: ast.Module, package: str) -> list[tuple[str, str]]:
    """List the imports of a module as pairs (name, source).

    `import a.b` gives ("a.b", ""). `from a import b` gives ("a.b", "a"), because b may be a module
    or a name in module a.
    """
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            imports += [(f"{source}.{alias.name}", source) for alias in node.names]
    return imports


def _remove_report_attributes(tree: ast.Module) -> None:
    """Remove the attributes that only reports use from a plug-in's classes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            node.body = [
                statement
                for statement in node.body
                if not (
                    isinstance(statement, ast.Assign)
                    and ast.unparse(statement.targets[0]) in REPORT_ATTRIBUTES
                )
            ]


def _dump_without_prose(tree: ast.Module, for_reports: bool = False) -> str:
    """Return a syntax tree as text, without docstrings and descriptions of fields.

    `REPORT_KEYWORDS` are left out too, unless the text is `for_reports`.
    """
    left_out = ("description", *(() if for_reports else REPORT_KEYWORDS))
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
                node.keywords = [keyword for keyword in keywords if keyword.arg not in left_out]
            case ast.JoinedStr(values=parts):  # Python 3.12 adds empty parts
                node.values = [part for part in parts if getattr(part, "value", None) != ""]
    return ascii(_to_tuples(tree))


def _to_tuples(node: object) -> object:
    """Return a syntax tree as tuples of types, names and values, the same in all Python versions.

    The output of `ast.unparse` depends on the version: since 3.12 it quotes f-strings differently.
    Empty fields are left out, because new versions add fields to some nodes.
    """
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        return type(node).__name__, *((name, _to_tuples(value)) for name, value in fields)
    return tuple(map(_to_tuples, node)) if isinstance(node, list) else node


def _strip_comments(template: str) -> str:
    """Return the text of a prompt's template without its comments."""
    from jinja2 import Environment

    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    tokens = environment.lex(template)
    return "".join(text for _, kind, text in tokens if not kind.startswith("comment"))
