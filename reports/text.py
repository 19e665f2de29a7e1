"""The same tables for a terminal, at most 80 columns wide where the names allow it."""

import textwrap

from reports.tables import Cell, Table

WIDTH = 80
MARKS = {"best": "*", "runner-up": "+", "": ""}


def render(tables: list[Table]) -> str:
    """All tables, a block for each group of columns, with the notes below."""
    return "\n".join(_table(table) for table in tables)


def _table(table: Table) -> str:
    parts = [_wrap(f"Table {table.number}. {table.caption}")]
    for position, group in enumerate(table.groups):
        head = [table.stub, *group.columns]
        body = [
            [row.label, *(_cell(cell, table.footnotes) for cell in row.cells[position])]
            for row in table.rows
        ]
        parts.append((f"{group.title}\n" if group.title else "") + _columns([head, *body]))
    legend = ["* best, + runner-up."] if table.ranked else []
    notes = [_wrap(" ".join([*legend, *table.notes]))]
    notes += [_wrap(f"[{key}] {reason}.", "    ") for reason, key in table.footnotes.items()]
    return "\n\n".join([*parts, "\n".join(notes)]) + "\n"


def _cell(cell: Cell, footnotes: dict[str, str]) -> str:
    text = f"{cell.text} ± {cell.deviation}" if cell.deviation else cell.text
    return text + MARKS[cell.mark] + (f" [{footnotes[cell.reason]}]" if cell.reason else "")


def _columns(lines: list[list[str]]) -> str:
    """Cells padded to the width of their columns, with a rule below the first line."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(f"  {line}" for line in [padded[0], rule, *padded[1:]])


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
