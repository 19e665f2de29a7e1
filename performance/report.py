"""`python -m performance.report [FOLDER]`: write FOLDER/README.md from its summary.jsonl."""

import sys
from itertools import groupby
from pathlib import Path
from statistics import median

from performance.expectations import check_expectations
from performance.parts import PARTS
from performance.results import FOLDER, read
from rapid.artifacts.files import write_text
from rapid.text import render_markdown_table, shorten_commit

HEAD = """# Performance

Made by `make bench`, on a GPU by `make gpu`; `python -m performance.report` writes this page from
summary.jsonl beside it. Figures are medians with quartiles. The two trainers are measured in turns,
and the speedup is a ratio within pairs. Parts on a CPU are in float32, on one thread bound to one
core, and sample with transformers, unless they say otherwise. `rapid plan` predicts costs; these
are measured.
"""
PROVENANCE = """## Where these figures come from

CPU time over wall-clock time is the median of a part's rows. Where it is well below 100%, something
else used the core.
"""
HOLDS = {True: "holds", False: "**does not hold**", None: "not measured"}
# In place of judging expectations.
NOT_JUDGED = "not judged: quick figures show that the command works, and mean nothing"


class Spread(list):
    """A median with its quartiles, printed as in 1.72x (1.65–1.80)."""

    def __format__(self, spec: str) -> str:
        """Format the three numbers.

        Args:
            spec: number of decimals and unit, as in "2x"; "" chooses decimals by the median's size.
        """
        digits = int(spec[0]) if spec else 0 if self[0] >= 100 else 1 if self[0] >= 10 else 2
        scale = 100 if spec.endswith("%") else 1
        middle, low, high = (f"{scale * value:.{digits}f}" for value in self)
        return f"{middle}{spec[1:]} ({low}–{high})"


def render_page(documents: dict[str, dict]) -> str:
    """Return the page in Markdown.

    Args:
        documents: the measurements of each part, as `performance.results.read` returns them.
    """
    results = [result for result in check_expectations(documents) if result.holds is not None]
    rows = [[result.text, result.measured, HOLDS[result.holds]] for result in results]
    expected = render_markdown_table(["Expected", "Measured", ""], rows)
    if _is_quick(documents):
        expected = f"{NOT_JUDGED.capitalize()}.\n"
    sections = [HEAD, f"## Expectations\n\n{expected}"]
    for part, document in documents.items():
        sections += [render_section(part, document["rows"])] if document["rows"] else []
        sections += [f"Not measured: {line}.\n" for line in document["missing"]]
    return "\n".join([*sections, _render_provenance(documents)])


def _is_quick(documents: dict[str, dict]) -> bool:
    """Return whether any part was measured with --quick."""
    return any(document["options"].get("quick") for document in documents.values())


def render_section(part: str, rows: list[dict]) -> str:
    """Return a part's title, text and tables in Markdown."""
    declared, tables = PARTS[part], []
    for varied, group in groupby(rows, key=lambda row: row.get("varied")):
        columns = declared["tables"][varied] if varied else declared["columns"]
        cells = [[cell.format(**_format_values(row)) for cell in columns.values()] for row in group]
        tables.append(render_markdown_table(list(columns), cells))
    text = declared["text"].format(**_format_values(rows[0]))
    return "\n".join([f"## ({part}) {declared['title']}\n\n{text}\n", *tables])


def _format_values(row: dict) -> dict:
    """Return the values for the names in the format strings of parts.yaml."""
    values = {name: Spread(v) if isinstance(v, list) else v for name, v in row.items()}
    if "rate" in row:
        graded = row["rate"] is None
        values["solve_rate"] = (
            f"real grader ({row['solved']:.0%})" if graded else f"{row['rate']:.0%}"
        )
    return values


def _render_provenance(documents: dict[str, dict]) -> str:
    """Return the section on where the figures come from: dates, commits, machines, versions."""
    rows, versions = [], {}
    for part, document in documents.items():
        versions |= document["versions"]
        shares = [row["cpu_share"] for row in document["rows"] if "cpu_share" in row]
        share = f"{median(shares):.0%}" if shares else ""
        source = [document["date"], shorten_commit(document["commit"], 10), document["hardware"]]
        rows.append([part, *source, _join(document["options"]), share])
    head = ["Part", "Date", "Commit", "Hardware", "Options", "CPU time / time"]
    return f"{PROVENANCE}\n{render_markdown_table(head, rows)}\nVersions: {_join(versions)}.\n"


def _join(values: dict) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def main(arguments: list[str] | None = None) -> None:
    """Write the page of a folder, and print which expectations hold."""
    arguments = sys.argv[1:] if arguments is None else arguments
    folder = Path(arguments[0]) if arguments else FOLDER
    documents = read(folder)
    write_text(folder / "README.md", render_page(documents))
    if _is_quick(documents):
        print(NOT_JUDGED)
    for result in [] if _is_quick(documents) else check_expectations(documents):
        print(f"{HOLDS[result.holds].strip('*')}: {result.text}: {result.measured}")
    print(folder / "README.md")


if __name__ == "__main__":
    main()
