"""A table as plain data: cells of text, and no TeX or HTML. The modules of `render` print it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rapid.benchmarks.problem_source import ProblemSource, describe_sources
from reports.formats import Format
from reports.statistics.estimates import Estimate
from reports.statistics.summary import Mark

MISSING = "\N{EM DASH}"
NOT_APPLICABLE = "N/A"


@dataclass(frozen=True)
class Source:
    """One value behind a cell: where it is from, and the file that has it, below the root."""

    label: str
    text: str
    path: str


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    deviation: str = ""  # stands under the text, after a plus-minus sign
    mark: Mark = ""
    reason: str = ""  # why a value is missing, or what it leaves out; becomes a footnote
    tied: bool = False  # within noise of the best of its column
    under: tuple[str, ...] = ()  # further lines below
    # For readers who ask where a figure is from:
    interval: str = ""
    detail: str = ""
    sources: tuple[Source, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines below the text."""
        return ((f"± {self.deviation}",) if self.deviation else ()) + self.under

    @property
    def line(self) -> str:
        """The text and the lines below it, in one line."""
        return " ".join([self.text, *self.lines])


@dataclass(frozen=True)
class Group:
    """Neighbouring columns under one heading ("" for none)."""

    title: str
    columns: list[str]


@dataclass(frozen=True)
class Row:
    """A label, and the cells of each group of the table. `section` starts a new part."""

    label: str
    cells: list[list[Cell]]
    section: bool = False

    @property
    def all_cells(self) -> list[Cell]:
        """The cells of all groups."""
        return [cell for cells in self.cells for cell in cells]


@dataclass(frozen=True)
class Table:
    """A numbered table."""

    number: int
    label: str  # the paper's own where it has one, for \ref
    caption: str
    stub: str  # the heading of the column of row labels
    groups: list[Group]
    rows: list[Row]
    notes: list[str]  # sentences below the table
    problems: Sequence[ProblemSource]  # that its figures are about: the caption says what they are
    listed: list[tuple[str, str]] = field(default_factory=list)  # notes on a line each, with names

    @property
    def full_caption(self) -> str:
        """The caption, with what the problems are."""
        return f"{self.caption} {describe_sources(self.problems)}".rstrip()

    def cells(self) -> Iterator[Cell]:
        """Yield all cells in the order of reading."""
        return (cell for row in self.rows for cell in row.all_cells)

    @property
    def column_names(self) -> list[str]:
        """The titles of the columns after their groups': MBPP+ (made): Pass@1."""
        return [
            ": ".join(filter(None, [group.title, column]))
            for group in self.groups
            for column in group.columns
        ]

    @property
    def ranked(self) -> bool:
        """Return whether any cell is marked best."""
        return any(cell.mark for cell in self.cells())

    @property
    def tied(self) -> bool:
        """Return whether any cell is within noise of the best."""
        return any(cell.tied for cell in self.cells())

    @property
    def footnotes(self) -> dict[str, str]:
        """Reason -> key: a, b, c, ... in the order of reading, one key for equal reasons."""
        reasons = dict.fromkeys(cell.reason for cell in self.cells() if cell.reason)
        return {reason: letters(position) for position, reason in enumerate(reasons)}


def interval(show: Format, estimate: Estimate | None) -> str:
    """Return the interval of an estimate, [71.2%, 80.0%]; "" where it has none."""
    if estimate is None or estimate.low is None:
        return ""
    return f"[{show(estimate.low)}, {show(estimate.high)}]"


def estimate_cell(
    show: Format,
    estimate: Estimate | None,
    unknown: str = "",
    under: tuple[str, ...] = (),
    **fields,
) -> Cell:
    """Return a cell of an estimate with its interval, and more lines, below.

    Args:
        unknown: the reason that is given where there is no estimate.
    """
    if estimate is None or estimate.value is None:
        return Cell(MISSING, reason=estimate.reason if estimate else unknown)
    lines = (interval(show, estimate), *under)
    return Cell(show(estimate.value), under=tuple(filter(None, lines)), **fields)


def letters(position: int) -> str:
    """Return the key of a footnote: 0, 1, ..., 26 -> a, b, ..., aa."""
    text = ""
    while position >= 0:
        position, letter = divmod(position, 26)
        text = chr(ord("a") + letter) + text
        position -= 1
    return text
