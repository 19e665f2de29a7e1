"""`build_table`: every table is made here, from rows, columns and its description in tables.yaml.

A row has a label and a subject of any kind: the name of an algorithm, a claim, a setting. A column
is a function from the subjects of all rows to their cells. Columns stand in groups by their titles;
the title "" is for columns without a common heading.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from reports import labels
from reports.measured import BASELINE, Measured
from reports.tables.notes import fill_template, load_descriptions, render_notes
from reports.tables.table import Cell, Group, Row, Table

RowSection = Iterable[tuple[str, Any]]  # labels and subjects of rows between two rules
Cells = Callable[[list[Any]], list[Cell]]
Groups = dict[str, dict[str, Cells]]


def by_row(cell: Callable[[Any], Cell]) -> Cells:
    """Return a column whose cells depend on their own row only."""
    return lambda subjects: [cell(subject) for subject in subjects]


def single_group(cells: dict[str, Callable[[Any], Cell]], title: str = "") -> Groups:
    """Return one group of columns whose cells depend on their own row only."""
    return {title: {name: by_row(cell) for name, cell in cells.items()}}


def build_table(
    name: str,
    measured: Measured,
    sections: Iterable[RowSection],
    groups: Groups,
    benchmarks: Sequence[str] = (),
    number: int | None = None,
    listed: Sequence[tuple[str, str]] = (),
    **facts: Any,
) -> Table:
    """Return a table.

    Args:
        name: of the table in tables.yaml.
        sections: of rows, with a rule between two of them.
        benchmarks: which the table is about; by default all.
        number: where tables.yaml has none.
        listed: notes on a line each, with the names that stand before them.
        facts: what caption and notes name, beside the main model and the baseline.
    """
    description, benchmark_key = load_descriptions()["tables"][name], next(iter(benchmarks), "")
    facts |= {
        "model": measured.params.tables.main.model,
        "baseline": labels.algorithm(BASELINE),
        "benchmark_key": benchmark_key,
        "benchmark": measured.label(benchmark_key) if benchmark_key else "",
    }
    lines = [
        (label, subject, position == 0)
        for section in sections
        for position, (label, subject) in enumerate(section)
    ]
    subjects = [subject for _, subject, _ in lines]
    cells = [[column(subjects) for column in columns.values()] for columns in groups.values()]
    return Table(
        number=number or description["number"],
        label=fill_template(description["label"], facts),
        caption=fill_template(description["caption"], facts),
        stub=description["stub"],
        groups=[Group(title, list(columns)) for title, columns in groups.items()],
        rows=[
            Row(label, [[column[row] for column in group] for group in cells], is_first and row > 0)
            for row, (label, _, is_first) in enumerate(lines)
        ],
        notes=render_notes(description["notes"], facts),
        problems=[measured.problems[key] for key in benchmarks or measured.problems],
        listed=list(listed),
    )
