"""How a table is set on the pages of a paper: at which width and size, in how many pieces.

LaTeX does not break a float, and says only in its log that one is too large. So the size of a table
is estimated here from its texts, generously: characters of half the size of type, lines of 1.2
times it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from reports.paper_style import POINTS_PER_INCH, PaperStyle
from reports.render import split_columns
from reports.tables.table import Cell, Row, Table

CHARACTER, LINE = 0.52, 1.2  # width and height, in sizes of type
GAP = 8.0  # points between two columns: twice \tabcolsep, as the template sets it
SMALLER = 0.8  # the size of further lines of a cell, in sizes of the table's type
RULES = 16.0  # points that the rules of a tabular take, with the space around them
# Sizes of type for tables, largest first: name, and share of the text's size.
SIZES = {"small": 0.9, "footnotesize": 0.8}
LEGEND = " " * 90  # as long as what the template says of marks, at the end of a caption
FILLED = 0.85  # of a page by its largest float


@dataclass(frozen=True)
class Panel:
    """A tabular: some groups of columns, by position, of some rows."""

    groups: list[int]
    rows: list[Row]


@dataclass(frozen=True)
class Note:
    """A paragraph below a table. A footnote has a key, other notes may have a name."""

    text: str
    key: str = ""
    name: str = ""


@dataclass(frozen=True)
class Float:
    """A piece of a table that stands on one page."""

    environment: str  # table, or table* across both columns
    size: str  # the command that sets the size of type
    panels: list[Panel] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    is_first: bool = True


def lay_out(table: Table, notes: Sequence[Note], style: PaperStyle) -> list[Float]:
    """Return the pieces of a table, each of which fits a page.

    Args:
        notes: what stands below the table.
    """
    environment, size, points, width = _choose_width(table, style)
    line = LINE * style.type_size
    floats = [Float(environment, size)]
    page = FILLED * style.text_height * POINTS_PER_INCH
    caption = [table.full_caption, LEGEND, *(table.notes if style.notes == "caption" else [])]
    room = page - _measure_paragraph(" ".join(caption), style.type_size, width)

    def turn_page() -> float:
        """Begin a piece, and return the room on its page below the line that names the table."""
        floats.append(Float(environment, size, is_first=False))
        return page - line

    columns = [_measure_group(table, position, points) for position in range(len(table.groups))]
    head = RULES + 2 * LINE * points
    for groups in split_columns(columns, width - _measure_labels(table, points)):
        rows = list(table.rows)
        while rows:
            heights = [_measure_row(row, groups, points) for row in rows]
            count = _count_fitting(heights, room - head)
            if not count and floats[-1].panels:
                room = turn_page()
                continue
            count = max(1, count)  # a row that no page holds stands on one of its own
            floats[-1].panels.append(Panel(groups, rows[:count]))
            room -= head + sum(heights[:count])
            rows = rows[count:]
    for note in notes:
        height = _measure_paragraph(
            note.name + note.text, SIZES["footnotesize"] * style.type_size, width
        )
        if height > room and (floats[-1].panels or floats[-1].notes):
            room = turn_page()
        floats[-1].notes.append(note)
        room -= height
    return floats


def _choose_width(table: Table, style: PaperStyle) -> tuple[str, str, float, float]:
    """Return environment and size of a table, its size of type and width, both in points.

    These are the largest type in the narrowest environment in which the table fits whole. One that
    fits nowhere takes the smallest type and the whole width, and is continued below.
    """
    widths = {"table": style.column_width} | (
        {"table*": style.text_width} if style.columns > 1 else {}
    )
    for environment, inches in widths.items():
        for size, share in SIZES.items():
            points, width = share * style.type_size, inches * POINTS_PER_INCH
            groups = (_measure_group(table, group, points) for group in range(len(table.groups)))
            if _measure_labels(table, points) + sum(groups) <= width:
                return environment, size, points, width
    return environment, size, points, width


def _measure_labels(table: Table, points: float) -> float:
    longest = max(map(len, [table.stub, *(row.label for row in table.rows)]))
    return GAP + CHARACTER * points * longest


def _measure_group(table: Table, position: int, points: float) -> float:
    """Return the width of a group of columns in points: its title's, if that is wider."""
    group = table.groups[position]
    widths = [
        max(
            [
                len(title) * points,
                *(_cell_width(row.cells[position][c], points) for row in table.rows),
            ]
        )
        for c, title in enumerate(group.columns)
    ]
    body = sum(GAP + CHARACTER * width for width in widths)
    return max(body, GAP + CHARACTER * len(group.title) * points)


def _cell_width(cell: Cell, points: float) -> float:
    """Return the width of a cell in characters times points."""
    return max([len(cell.text) * points, *(len(line) * SMALLER * points for line in cell.lines)])


def _measure_row(row: Row, groups: Sequence[int], points: float) -> float:
    lines = max(len(cell.lines) for group in groups for cell in row.cells[group])
    return LINE * points * (1 + SMALLER * lines) + (GAP if lines or row.section else 0)


def _measure_paragraph(text: str, points: float, width: float) -> float:
    return LINE * points * math.ceil(CHARACTER * points * len(text) / width)


def _count_fitting(heights: Sequence[float], room: float) -> int:
    """Return how many of these, from the first, fit into the room."""
    count = 0
    for height in heights:
        room -= height
        if room < 0:
            break
        count += 1
    return count
