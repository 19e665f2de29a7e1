"""docs/architecture.md has every file and no other, and the graph of Snakemake's rules.

    python -m tests.test_architecture

brings both up to date: comments on files stay, and a new file gets the first line of its own
documentation.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.checkout import ROOT, listed
from tests.test_layers import LAYERS

PAGE = ROOT / "docs/architecture.md"
FOLDERS = ("rapid", "reports", "performance", "profiles", "workflow")
TREE = re.compile(r"(?<=```text\n)(rapid/.*?)(?=```)", re.DOTALL)
GRAPH = re.compile(r"(?<=```mermaid\n)(flowchart TD\n.*?)(?=```)", re.DOTALL)
COLUMN, WIDTH = 28, 100


def entries() -> list[str]:
    """Return the paths that the tree has to have, a folder ("rapid/") before what is in it.

    The line of a package stands for its __init__.py.
    """
    found = {f"{top}/" for top in FOLDERS}
    for name in listed(*FOLDERS):
        found |= {f"{parent}/" for parent in Path(name).parents if parent.name}
        found |= {name} - {f"{Path(name).parent}/__init__.py"}

    def place(path: str) -> tuple:  # files come before folders
        return FOLDERS.index(path.split("/")[0]), [(p.endswith("/"), p) for p in parts(path)]

    return sorted(found, key=place)


def parts(path: str) -> list[str]:
    """Split a path into its folders, each with its slash, and its file: a/b/c -> a/, b/, c."""
    return re.findall(r"[^/]+/?", path)


def documented() -> dict[str, str]:
    """Return the comment of each path in the page's tree."""
    found, folders = {}, []
    for line in TREE.search(PAGE.read_text(encoding="utf-8"))[1].splitlines():
        name, _, comment = line.strip().partition(" ")
        del folders[(len(line) - len(line.lstrip())) // 2 :]
        found["".join([*folders, name])] = comment.strip()
        folders += [name] if name.endswith("/") else []
    return found


def described(path: str) -> str:
    """Return the first line of a file's own documentation, or as many of its clauses as fit."""
    file = ROOT / path / "__init__.py" if path.endswith("/") else ROOT / path
    if file.suffix != ".py" or not file.is_file():
        return ""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    clauses = re.findall(r".+?(?:[,:.;](?= )|$)", text.partition("\n")[0])
    while len("".join(clauses)) >= WIDTH - COLUMN and len(clauses) > 1:
        clauses.pop()
    return "".join(clauses).rstrip(".,:;")


def tree(comments: dict[str, str]) -> str:
    lines = []
    for path in entries():
        *folders, name = parts(path)
        indented = "  " * len(folders) + name
        lines.append(f"{indented:<{COLUMN}} {comments.get(path) or described(path)}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def draw_rule_graph() -> str:
    """Return what Snakemake says of the default's rules, an arrow from each to those that use it."""
    command = [sys.executable, "-m", "snakemake", "--nolock", "--rulegraph", "mermaid-js"]
    graph = subprocess.check_output(command, cwd=ROOT, text=True, stderr=subprocess.DEVNULL)
    names = dict(re.findall(r"^\t(id\d+)\[(\w+)\]$", graph, re.MULTILINE))
    arrows = re.findall(r"^\t(id\d+) --> (id\d+)$", graph, re.MULTILINE)
    lines = sorted(f"    {names[source]} --> {names[user]}\n" for source, user in arrows)
    return "".join(["flowchart TD\n", *lines])


def test_the_graph_is_that_of_the_rules():
    assert GRAPH.search(PAGE.read_text(encoding="utf-8"))[1] == draw_rule_graph()


def test_the_tree_has_every_file_and_no_other():
    expected, found = set(entries()), set(documented())
    missing, extra = sorted(expected - found), sorted(found - expected)
    help = "python -m tests.test_architecture brings the tree up to date"
    assert not missing and not extra, f"missing: {missing}; too many: {extra}; {help}"


def test_each_line_of_the_tree_has_a_comment_and_fits():
    assert not [path for path, comment in documented().items() if not comment]
    lines = TREE.search(PAGE.read_text(encoding="utf-8"))[1].splitlines()
    assert not [line for line in lines if len(line) > WIDTH]


def test_the_page_has_the_layers_that_are_tested():
    text = PAGE.read_text(encoding="utf-8")
    items = re.findall(r"^\d+\. ((?:`rapid/[\w/.]+`(?:,\s+)?)+):", text, re.MULTILINE)
    rows = [{room.replace("/", ".") for room in re.findall(r"`(.*?)`", item)} for item in items]
    beside = {"rapid", "rapid.__main__", "reports", "performance"}  # said in words
    assert [{room.removesuffix(".py") for room in row} for row in rows] == [
        rooms for layer in LAYERS if (rooms := set(layer) - beside)
    ]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    text = TREE.sub(lambda _: tree(documented()), text)
    PAGE.write_text(GRAPH.sub(lambda _: draw_rule_graph(), text), encoding="utf-8")
