"""Lays out tables on the pages of a paper: chooses their width and type size, splits tall tables.

LaTeX does not split a float that is too large for a page, and only warns in its log. So the size of
a table is estimated here from its texts. The estimate is an upper bound for usual texts: a
character is about half as wide as the size of type, and a line 1.2 times as high.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from reports.paper_style import POINTS_PER_INCH, PaperStyle
from reports.render import split_columns
from reports.tables.table import Row, Table

CHARACTER, LINE = 0.52, 1.2  # width of a character and height of a line, relative to type size
GAP = 8.0  # points between two columns: twice the \tabcolsep that the template sets
SMALL_LINE_SIZE = 0.8  # size of the further lines of a cell, relative to the table's size of type
ROW_SPACE = 8.0  # height in points of the space, and perhaps a line, between two rows
RULES = 16.0  # height in points of the horizontal lines of a tabular and the space around them
# Type sizes of tables, largest first: LaTeX's size command -> size relative to the text's type.
SIZES = {"small": 0.9, "footnotesize": 0.8}
LEGEND = " " * 90  # as long as the explanation of marks that the template adds to a caption
MAX_FILL = 0.85  # largest share of a page's height that a float may take


@dataclass(frozen=True)
class Panel:
    """A tabular with some groups of columns of a table, by position, and some of its rows."""

    groups: list[int]
    rows: list[Row]


@dataclass(frozen=True)
class Note:
    """A paragraph below a table: a footnote with a key, or a note, which may have a name."""

    text: str
    key: str = ""
    name: str = ""


@dataclass(frozen=True)
class Float:
    """A piece of a table that fits one page.

    Args:
        environment: table, or table* across both columns of text.
        size: LaTeX's command for the size of type, without its backslash.
        is_first: whether it is the first piece of its table, which has the caption.
    """

    environment: str
    size: str
    panels: list[Panel] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    is_first: bool = True


def lay_out(table: Table, notes: Sequence[Note], style: PaperStyle) -> list[Float]:
    """Return the pieces of a table with the notes below it, each of which fits a page.

    A group of columns is never split. Groups that do not fit beside each other are put below each
    other. Rows and notes that do not fit the page continue in the next piece.
    """
    environment, size, points, width = _choose_width(table, style)
    line_height = LINE * style.type_size
    floats = [Float(environment, size)]
    page_height = MAX_FILL * style.text_height * POINTS_PER_INCH
    caption = [table.full_caption, LEGEND, *(table.notes if style.notes == "caption" else [])]
    height_left = page_height - _measure_paragraph(" ".join(caption), style.type_size, width)

    def turn_page() -> float:
        """Begin a new piece, and return the height left below its line "Table 1, continued."."""
        floats.append(Float(environment, size, is_first=False))
        return page_height - line_height

    widths = [_measure_group(table, position, points) for position in range(len(table.groups))]
    head_height = RULES + 2 * LINE * points
    for groups in split_columns(widths, width - _measure_labels(table, points)):
        rows = list(table.rows)
        while rows:
            heights = [_measure_row(row, groups, points) for row in rows]
            count = sum(total <= height_left - head_height for total in accumulate(heights))
            if not count and floats[-1].panels:
                height_left = turn_page()
                continue
            count = max(1, count)  # a row taller than a page gets a page of its own
            floats[-1].panels.append(Panel(groups, rows[:count]))
            height_left -= head_height + sum(heights[:count])
            rows = rows[count:]
    for note in notes:
        height = _measure_paragraph(
            note.name + note.text, SIZES["footnotesize"] * style.type_size, width
        )
        if height > height_left and (floats[-1].panels or floats[-1].notes):
            height_left = turn_page()
        floats[-1].notes.append(note)
        height_left -= height
    return floats


def _choose_width(table: Table, style: PaperStyle) -> tuple[str, str, float, float]:
    """Return a table's environment and size command, and its type size and width, both in points.

    The narrowest environment in which all columns fit beside each other is chosen, with the largest
    type that fits. If they fit in no environment, the widest is chosen with the smallest type.
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
    """Return the width in points of the column of row labels, in type of this size in points."""
    longest = max(map(len, [table.stub, *(row.label for row in table.rows)]))
    return GAP + CHARACTER * points * longest


def _measure_group(table: Table, position: int, points: float) -> float:
    """Return the width in points of a group of columns, or of its title if that is wider."""
    group = table.groups[position]
    body = 0.0
    for column, title in enumerate(group.columns):
        cells = [row.cells[position][column] for row in table.rows]
        widths = [len(text) * points for text in (title, *(cell.text for cell in cells))]
        widths += [len(line) * SMALL_LINE_SIZE * points for cell in cells for line in cell.lines]
        body += GAP + CHARACTER * max(widths)
    return max(body, GAP + CHARACTER * len(group.title) * points)


def _measure_row(row: Row, groups: Sequence[int], points: float) -> float:
    """Return the height in points of a row, with these groups of columns."""
    lines = max((len(cell.lines) for group in groups for cell in row.cells[group]), default=0)
    space = ROW_SPACE if lines or row.starts_section else 0
    return LINE * points * (1 + SMALL_LINE_SIZE * lines) + space


def _measure_paragraph(text: str, points: float, width: float) -> float:
    """Return the height in points of a paragraph of this width."""
    return LINE * points * math.ceil(CHARACTER * points * len(text) / width)
