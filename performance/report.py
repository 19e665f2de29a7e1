"""`python -m performance.report [FOLDER]`: FOLDER/summary.jsonl -> README.md, growth.svg in it."""

import sys
from itertools import groupby
from pathlib import Path
from statistics import median

import yaml

from performance.expectations import expectations
from performance.results import FOLDER, read
from rapid.artifacts.files import write_text
from rapid.text import markdown, short

HEAD = """# Performance

Made by `make bench`, on a GPU by `make gpu`; `python -m performance.report` writes this page from
summary.jsonl beside it. Figures are medians with quartiles; "faster" is the ratio within pairs of
samples that were taken in turns. Parts on a CPU are in float32, (m) in float64, on one thread bound
to one core. All sample with transformers.
"""
PROVENANCE = """## Where these figures come from

CPU time over wall-clock time is the median of a part's rows. Where it is well below 100%, something
else used the core.
"""
HOLDS = {True: "holds", False: "**does not hold**", None: "not measured"}
NOT_JUDGED = "not judged: quick figures show that the command works, and mean nothing"
SECTIONS = yaml.safe_load((Path(__file__).parent / "sections.yaml").read_text(encoding="utf-8"))


class Spread(list):
    """A median with its quartiles, printed as in 1.72x (1.65–1.80)."""

    def __format__(self, spec: str) -> str:
        """Format with the digits and the unit of a spec like "2x"; fitting digits without one."""
        digits = int(spec[0]) if spec else 0 if self[0] >= 100 else 1 if self[0] >= 10 else 2
        scale = 100 if spec.endswith("%") else 1
        middle, low, high = (f"{scale * value:.{digits}f}" for value in self)
        return f"{middle}{spec[1:]} ({low}–{high})"


def render(documents: dict[str, dict]) -> str:
    """Return the page."""
    claims = [claim for claim in expectations(documents) if claim.holds is not None]
    rows = [[claim.text, claim.found, HOLDS[claim.holds]] for claim in claims]
    expected = markdown(["Expected", "Found", ""], rows)
    if _is_quick(documents):
        expected = f"{NOT_JUDGED.capitalize()}.\n"
    parts = [HEAD, f"## Expectations\n\n{expected}"]
    for part, document in documents.items():
        parts += [section(part, document["rows"])] if document["rows"] else []
        parts += [f"Not measured: {line}.\n" for line in document["missing"]]
    return "\n".join([*parts, _provenance(documents)])


def _is_quick(documents: dict[str, dict]) -> bool:
    """Return whether some figures were made with --quick."""
    return any(document["options"].get("quick") for document in documents.values())


def section(part: str, rows: list[dict]) -> str:
    """Return a part's title, text and tables."""
    section, tables = SECTIONS[part], []
    for varied, some in groupby(rows, key=lambda row: row.get("varied")):
        columns = section["tables"][varied] if varied else section["columns"]
        cells = [[cell.format(**_values(row)) for cell in columns.values()] for row in some]
        tables.append(markdown(list(columns), cells))
    text = section["text"].format(**_values(rows[0]))
    return "\n".join([f"## ({part}) {section['title']}\n\n{text}\n", *tables])


def _values(row: dict) -> dict:
    """Return what texts in braces stand for."""
    values = {name: Spread(one) if isinstance(one, list) else one for name, one in row.items()}
    if "saving" in row:
        values["saving"] = row["saving"].replace("_", "\\_")
    if "rate" in row:
        real = row["rate"] is None
        values["solve_rate"] = (
            f"real grader ({row['solved']:.0%})" if real else f"{row['rate']:.0%}"
        )
    return values


def _provenance(documents: dict[str, dict]) -> str:
    rows, packages = [], {}
    for part, document in documents.items():
        packages |= document["versions"]
        shares = [row["cpu_share"] for row in document["rows"] if "cpu_share" in row]
        share = f"{median(shares):.0%}" if shares else ""
        source = [document["date"], short(document["commit"], 10), document["hardware"]]
        rows.append([part, *source, _listed(document["options"]), share])
    head = ["Part", "Date", "Commit", "Hardware", "Options", "CPU time / time"]
    return f"{PROVENANCE}\n{markdown(head, rows)}\nVersions: {_listed(packages)}.\n"


def _listed(values: dict) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def main(arguments: list[str] | None = None) -> None:
    """Write the page of a folder, and print which expectations hold."""
    arguments = sys.argv[1:] if arguments is None else arguments
    folder = Path(arguments[0]) if arguments else FOLDER
    documents = read(folder)
    write_text(folder / "README.md", render(documents))
    if documents.get("h", {}).get("rows"):
        from performance import growth  # which needs matplotlib

        write_text(folder / "growth.svg", growth.draw(documents))
    if _is_quick(documents):
        print(NOT_JUDGED)
    for claim in [] if _is_quick(documents) else expectations(documents):
        print(f"{HOLDS[claim.holds].strip('*')}: {claim.text}: {claim.found}")
    print(folder / "README.md")


if __name__ == "__main__":
    main()
