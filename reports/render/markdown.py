"""Renders a table as Markdown with its caption and notes, for pages and issues on GitHub."""

import re

from rapid.text import render_markdown_table
from reports.tables.table import Cell, Table

MARKS = {"best": "**", "runner-up": "*", "": ""}  # before and after the text of a marked cell


def render(table: Table) -> str:
    """Return the caption, the table, its notes and its footnotes."""
    legend = ["Best in bold, runner-up in italics."] if table.has_ranks else []
    legend += ["† within noise of the best."] if table.has_ties else []
    caption = f"**Table {table.number}.** {_escape_prose(' '.join([table.full_caption, *legend]))}"
    rows = [
        [_escape(row.label), *(_render_cell(cell, table.footnotes) for cell in row.all_cells)]
        for row in table.rows
    ]
    head = [_escape(title) for title in [table.stub, *table.column_names]]
    notes = [_escape_prose(" ".join(table.notes))] if table.notes else []
    notes += [f"*{_escape(name)}*: {_escape_prose(text)}" for name, text in table.named_notes]
    notes += [
        f"<sup>{key}</sup> {_escape_prose(reason)}." for reason, key in table.footnotes.items()
    ]
    return "\n\n".join([caption, render_markdown_table(head, rows).rstrip(), *notes]) + "\n"


def _render_cell(cell: Cell, footnotes: dict[str, str]) -> str:
    mark = MARKS[cell.mark]
    text = f"{mark}{_escape(cell.one_line)}{mark}" + "†" * cell.tied
    return text + (f" <sup>{footnotes[cell.reason]}</sup>" if cell.reason else "")


def _escape(text: str) -> str:
    """Return a text with backslashes before the signs that have a meaning in Markdown.

    Brackets stay, because those of intervals are no links: 1.6 [-0.1, 3.2]. So do signs that matter
    only at the start of a line, with which no note begins.
    """
    return re.sub(r"([\\`*_<|~$])", r"\\\1", text)


def _escape_prose(text: str) -> str:
    """Return a caption or note as Markdown, in which text between backticks stays code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if number % 2 else _escape(part) for number, part in enumerate(parts))
