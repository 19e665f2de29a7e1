"""docs/architecture.md has the tree of folders, the graph of Snakemake's rules, and the layers.

    python -m tests.test_architecture

updates the graph.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.checkout import ROOT, list_files
from tests.test_layers import LAYERS

PAGE = ROOT / "docs/architecture.md"
TREE = re.compile(r"(?<=```text\n)(rapid/.*?)(?=```)", re.DOTALL)
GRAPH = re.compile(r"(?<=```mermaid\n)(flowchart TD\n.*?)(?=```)", re.DOTALL)
FILE = re.compile(r"[\w.]+\.(?:py|yaml|smk|js|lean|lark|j2|md)\b")
WITHOUT_SUBFOLDERS = ("docs", "tests")


def list_folders() -> set[str]:
    """Return the folders that the tree lists ("rapid/algorithms/"), without hidden ones."""
    folders = set()
    for name in list_files():
        top, *_ = parts = Path(name).parent.parts or (".",)
        if not top.startswith("."):
            depth = 1 if top in WITHOUT_SUBFOLDERS else len(parts)
            folders |= {"/".join(parts[:n]) + "/" for n in range(1, depth + 1)}
    return folders


def read_tree() -> dict[str, str]:
    """Return the comment of each folder in the page's tree."""
    comments: dict[str, str] = {}
    parents: list[str] = []
    for line in TREE.search(PAGE.read_text(encoding="utf-8"))[1].splitlines():
        name, _, comment = line.strip().partition(" ")
        del parents[(len(line) - len(line.lstrip())) // 2 :]
        parents.append(name)
        comments["".join(parents)] = comment.strip()
    return comments


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


def test_the_tree_describes_every_folder_and_no_others():
    comments = read_tree()
    assert set(comments) == list_folders(), "edit the tree of docs/architecture.md"
    assert all(comments.values())


def test_files_named_in_the_tree_exist():
    paths = [folder + name for folder, text in read_tree().items() for name in FILE.findall(text)]
    assert len(paths) > 40
    assert not [path for path in paths if not (ROOT / path).is_file()]


def test_the_page_lists_the_layers_of_test_layers():
    text = PAGE.read_text(encoding="utf-8")
    text = text.partition("## Import layers")[2].partition("\n## ")[0]
    items = re.findall(r"^\d+\. ((?:`rapid/[\w/.]+`(?:,\s+)?)+)$", text, re.MULTILINE)
    rows = [{room.replace("/", ".") for room in re.findall(r"`(.*?)`", item)} for item in items]
    described_below_the_list = {"rapid", "rapid.__main__", "reports", "performance"}
    assert [{room.removesuffix(".py") for room in row} for row in rows] == [
        rooms for layer in LAYERS if (rooms := set(layer) - described_below_the_list)
    ]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(GRAPH.sub(lambda _: draw_rule_graph(), text), encoding="utf-8")
