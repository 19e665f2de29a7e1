"""docs/architecture.md has the tree of all files, the graph of Snakemake's rules, and the layers.

    python -m tests.test_architecture

updates the tree and the graph: comments on files are kept, and a new file gets the first line of its
docstring.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.checkout import ROOT, list_files
from tests.test_layers import LAYERS

PAGE = ROOT / "docs/architecture.md"
FOLDERS = ("rapid", "examples", "reports", "performance", "profiles", "workflow")
TREE = re.compile(r"(?<=```text\n)(rapid/.*?)(?=```)", re.DOTALL)
GRAPH = re.compile(r"(?<=```mermaid\n)(flowchart TD\n.*?)(?=```)", re.DOTALL)
COLUMN, WIDTH = 28, 100


def list_entries() -> list[str]:
    """Return the paths of the tree, a folder ("rapid/") before its files.

    The line of a package stands for its __init__.py.
    """
    paths = {f"{top}/" for top in FOLDERS}
    for name in list_files(*FOLDERS):
        paths |= {f"{parent}/" for parent in Path(name).parents if parent.name}
        paths |= {name} - {f"{Path(name).parent}/__init__.py"}

    def get_sort_key(path: str) -> tuple:  # files are before folders
        parts = split_path(path)
        return FOLDERS.index(path.split("/")[0]), [(part.endswith("/"), part) for part in parts]

    return sorted(paths, key=get_sort_key)


def split_path(path: str) -> list[str]:
    """Split a path into its folders, each with its slash, and its file: a/b/c -> a/, b/, c."""
    return re.findall(r"[^/]+/?", path)


def read_comments() -> dict[str, str]:
    """Return the comment of each path in the page's tree."""
    comments, folders = {}, []
    for line in TREE.search(PAGE.read_text(encoding="utf-8"))[1].splitlines():
        name, _, comment = line.strip().partition(" ")
        del folders[(len(line) - len(line.lstrip())) // 2 :]
        comments["".join([*folders, name])] = comment.strip()
        folders += [name] if name.endswith("/") else []
    return comments


def describe_file(path: str) -> str:
    """Return the first line of a file's docstring, or as many of its clauses as fit."""
    file = ROOT / path / "__init__.py" if path.endswith("/") else ROOT / path
    if file.suffix != ".py" or not file.is_file():
        return ""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    clauses = re.findall(r".+?(?:[,:.;](?= )|$)", text.partition("\n")[0])
    while len("".join(clauses)) >= WIDTH - COLUMN and len(clauses) > 1:
        clauses.pop()
    return "".join(clauses).rstrip(".,:;")


def render_tree(comments: dict[str, str]) -> str:
    lines = []
    for path in list_entries():
        *folders, name = split_path(path)
        indented = "  " * len(folders) + name
        comment = comments.get(path) or describe_file(path)
        lines.append(f"{indented:<{COLUMN}} {comment}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def draw_rule_graph() -> str:
    """Return the graph of the default's rules, with an arrow from each rule to those that use it."""
    command = [sys.executable, "-m", "snakemake", "--nolock", "--rulegraph", "mermaid-js"]
    graph = subprocess.check_output(command, cwd=ROOT, text=True, stderr=subprocess.DEVNULL)
    names = dict(re.findall(r"^\t(id\d+)\[(\w+)\]$", graph, re.MULTILINE))
    arrows = re.findall(r"^\t(id\d+) --> (id\d+)$", graph, re.MULTILINE)
    lines = sorted(f"    {names[source]} --> {names[user]}\n" for source, user in arrows)
    return "".join(["flowchart TD\n", *lines])


def test_the_page_has_the_graph_of_the_rules():
    assert GRAPH.search(PAGE.read_text(encoding="utf-8"))[1] == draw_rule_graph()


def test_the_tree_of_the_page_has_all_files_with_comments_and_no_others():
    comments = read_comments()
    assert set(list_entries()) == set(comments), "run python -m tests.test_architecture"
    assert all(comments.values())


def test_the_page_lists_the_layers_of_test_layers():
    text = PAGE.read_text(encoding="utf-8")
    text = text.partition("## Import layers")[2].partition("\n## ")[0]
    items = re.findall(r"^\d+\. ((?:`rapid/[\w/.]+`(?:,\s+)?)+):", text, re.MULTILINE)
    rows = [{room.replace("/", ".") for room in re.findall(r"`(.*?)`", item)} for item in items]
    in_the_text_below = {"rapid", "rapid.__main__", "reports", "performance"}
    assert [{room.removesuffix(".py") for room in row} for row in rows] == [
        rooms for layer in LAYERS if (rooms := set(layer) - in_the_text_below)
    ]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    text = TREE.sub(lambda _: render_tree(read_comments()), text)
    PAGE.write_text(GRAPH.sub(lambda _: draw_rule_graph(), text), encoding="utf-8")
