"""`python -m performance.report [FOLDER]`: write FOLDER/README.md from its summary.jsonl."""

import sys
from itertools import groupby
from pathlib import Path
from statistics import median

from performance.expectations import check_expectations
from performance.parts import PARTS
from performance.results import FOLDER, read_parts
from rapid.artifacts.files import write_text
from rapid.text import render_markdown_table, shorten_commit

HEADER = """# Performance

Made by `make bench`, on a GPU by `make gpu`; `python -m performance.report` writes this page from
summary.jsonl beside it. Figures are medians with quartiles. Trainers are measured in turns, and the
speedup is a ratio within pairs of samples. Unless a part says otherwise, on a CPU it uses float32,
one thread on one core, and transformers for sampling. `rapid plan` predicts costs; those on
this page are measured.
"""
PROVENANCE = """## Where these figures come from

CPU time over wall-clock time is the median of a part's rows. If it is well below 100% of the
cores, other processes used them.
"""
OUTCOMES = {True: "holds", False: "**does not hold**", None: "not measured"}
NOT_CHECKED = "Expectations are not checked, because the figures are those of --quick."


class Quartiles(list):
    """A median with its quartiles, formatted like 1.72x (1.65–1.80)."""

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
        documents: the measurements of each part, as `performance.results.read_parts` returns them.
    """
    results = [result for result in check_expectations(documents) if result.holds is not None]
    rows = [[result.text, result.measured, OUTCOMES[result.holds]] for result in results]
    expected = render_markdown_table(["Expected", "Measured", ""], rows)
    if _is_quick(documents):
        expected = f"{NOT_CHECKED}\n"
    sections = [HEADER, f"## Expectations\n\n{expected}"]
    for part, document in documents.items():
        sections += [render_section(part, document["rows"])] if document["rows"] else []
        sections += [f"Not measured: {line}.\n" for line in document["missing"]]
    return "\n".join([*sections, _render_provenance(documents)])


def _is_quick(documents: dict[str, dict]) -> bool:
    """Return whether any part was measured with --quick."""
    return any(document["options"].get("quick") for document in documents.values())


def render_section(part: str, rows: list[dict]) -> str:
    """Return a part's title, text and tables in Markdown.

    A part has one table, or one for each setting that it varies (`varied` in parts.yaml).
    """
    declaration, tables = PARTS[part], []
    for varied, group in groupby(rows, key=lambda row: row.get("varied")):
        columns = declaration["tables"][varied] if varied else declaration["columns"]
        cells = [[cell.format(**_format_values(row)) for cell in columns.values()] for row in group]
        tables.append(render_markdown_table(list(columns), cells))
    text = declaration["text"].format(**_format_values(rows[0]))
    return "\n".join([f"## ({part}) {declaration['title']}\n\n{text}\n", *tables])


def _format_values(row: dict) -> dict:
    """Return a row's values as the format strings of parts.yaml need them."""
    values = {
        name: Quartiles(value) if isinstance(value, list) else value for name, value in row.items()
    }
    if "solve_rate" in row:  # None stands for the real grader
        values["solve_rate"] = (
            f"real grader ({row['rewarded_share']:.0%})"
            if row["solve_rate"] is None
            else f"{row['solve_rate']:.0%}"
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
        rows.append([part, *source, _join_items(document["options"]), share])
    head = ["Part", "Date", "Commit", "Hardware", "Options", "CPU time / time"]
    return (
        f"{PROVENANCE}\n{render_markdown_table(head, rows)}\nVersions: {_join_items(versions)}.\n"
    )


def _join_items(values: dict) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def main(arguments: list[str] | None = None) -> None:
    """Write the page of a folder, and print whether each expectation holds."""
    arguments = sys.argv[1:] if arguments is None else arguments
    folder = Path(arguments[0]) if arguments else FOLDER
    documents = read_parts(folder)
    write_text(folder / "README.md", render_page(documents))
    if _is_quick(documents):
        print(NOT_CHECKED)
    else:
        for result in check_expectations(documents):
            print(f"{OUTCOMES[result.holds].strip('*')}: {result.text}: {result.measured}")
    print(folder / "README.md")


if __name__ == "__main__":
    main()
