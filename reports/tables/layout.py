"""Builds every table with `build_table`, from rows, columns and the texts in captions.yaml.

A row has a label and a subject, which may be anything: the name of an algorithm, a claim, a
hyperparameter. A column is a function that takes the subjects of all rows and returns their cells.
Columns are grouped under common headings; the heading "" stands for none.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from reports import labels
from reports.report_data import BASELINE, ReportData
from reports.tables.notes import fill_template, load_descriptions, render_notes
from reports.tables.table import Cell, Group, Row, Table

RowSection = Iterable[tuple[str, Any]]  # (label, subject) of the rows between two horizontal lines
ColumnFunction = Callable[[list[Any]], list[Cell]]  # from the subjects of all rows to their cells
ColumnGroups = dict[str, dict[str, ColumnFunction]]  # heading of a group -> title -> column


def apply_by_row(build_cell: Callable[[Any], Cell]) -> ColumnFunction:
    """Return a column from a function that makes the cell of a row."""
    return lambda subjects: [build_cell(subject) for subject in subjects]


def single_group(columns: dict[str, Callable[[Any], Cell]], heading: str = "") -> ColumnGroups:
    """Return a single group of columns, by title: functions that make the cell of a row."""
    return {heading: {title: apply_by_row(build_cell) for title, build_cell in columns.items()}}


def build_table(
    name: str,
    data: ReportData,
    sections: Iterable[RowSection],
    groups: ColumnGroups,
    benchmarks: Sequence[str] = (),
    number: int | None = None,
    named_notes: Sequence[tuple[str, str]] = (),
    **facts: Any,
) -> Table:
    """Return a table.

    Args:
        name: the name of the table in captions.yaml or arena_captions.yaml.
        sections: the rows, in sections with a horizontal line between them.
        benchmarks: the benchmarks that the table is about; by default all.
        number: the number of the table, if its entry there has none.
        named_notes: notes as (name, text), each of which is printed on a line of its own.
        facts: variables of the table's texts, in addition to the main model, the baseline and the
            first benchmark.
    """
    description, benchmark_key = load_descriptions()["tables"][name], next(iter(benchmarks), "")
    facts |= {
        "model": data.params.tables.main.model,
        "baseline": labels.algorithm(BASELINE),
        "benchmark_key": benchmark_key,
        "benchmark": data.label_benchmark(benchmark_key) if benchmark_key else "",
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
            Row(
                label,
                [[column[row] for column in group] for group in cells],
                starts_section=is_first and row > 0,
            )
            for row, (label, _, is_first) in enumerate(lines)
        ],
        notes=render_notes(description["notes"], facts),
        problems=[data.problems[key] for key in benchmarks or data.problems],
        named_notes=list(named_notes),
    )
