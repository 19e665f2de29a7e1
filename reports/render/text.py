"""Renders tables for a terminal, at most 80 characters wide unless a label or cell is wider."""

import textwrap
from collections.abc import Sequence

from rapid.text import align_columns, escape_control_chars
from reports.formats import NO_BREAK
from reports.render import split_columns
from reports.tables.table import Cell, Table

WIDTH = 80  # characters
MARKS = {"best": "*", "runner-up": "+", "": ""}  # after the text of a marked cell


def render(tables: list[Table], experiment: str | None = None, lead: Sequence[str] = ()) -> str:
    """Return the experiment's name on a line, the main findings, and the tables with their notes.

    Args:
        lead: paragraphs with the main findings, in which a no-break space joins what is to stay on
            one line.
    """
    head = [f"Experiment: {experiment}\n"] if experiment else []
    head += [_wrap(paragraph).replace(NO_BREAK, " ") + "\n" for paragraph in lead]
    return escape_control_chars("\n".join([*head, *(_render_table(table) for table in tables)]))


def _render_table(table: Table) -> str:
    parts = [_wrap(f"Table {table.number}. {table.full_caption}")]
    labels = [table.stub, *(row.label for row in table.rows)]
    for position, group in enumerate(table.groups):
        texts = [
            [title, *(_render_cell(row.cells[position][c], table.footnotes) for row in table.rows)]
            for c, title in enumerate(group.columns)
        ]
        parts.append((f"{group.title}\n" if group.title else "") + _render_columns(labels, texts))
    legend = ["* best, + runner-up."] if table.has_ranks else []
    legend += ["~ within noise of the best."] if table.has_ties else []
    notes = [_wrap(" ".join([*legend, *table.notes]))]
    notes += [_wrap(f"{name}: {text}", "    ") for name, text in table.named_notes]
    notes += [_wrap(f"[{key}] {reason}.", "    ") for reason, key in table.footnotes.items()]
    return "\n\n".join([*parts, "\n".join(notes)]) + "\n"


def _render_cell(cell: Cell, footnotes: dict[str, str]) -> str:
    text = cell.one_line + MARKS[cell.mark] + ("~" if cell.tied else "")
    return text + (f" [{footnotes[cell.reason]}]" if cell.reason else "")


def _render_columns(labels: list[str], texts: list[list[str]]) -> str:
    """Return columns beside the row labels, in as many panels below each other as they need."""
    first, *widths = (2 + max(map(len, column)) for column in [labels, *texts])
    blocks = [
        align_columns(zip(labels, *(texts[c] for c in panel), strict=True), rule=True)
        for panel in split_columns(widths, WIDTH - first)
    ]
    return "\n\n".join("\n".join(f"  {line}" for line in block) for block in blocks)


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
