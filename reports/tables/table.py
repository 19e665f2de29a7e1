"""Tables as plain data: cells of text, without TeX or HTML. The modules of `render` print them."""

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
    """One of the values from which a cell was computed.

    Args:
        label: name of the run.
        text: the value.
        path: of the file that has the value, below the root.
    """

    label: str
    text: str
    path: str


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Args:
        deviation: standard deviation, printed after ±.
        mark: best or runner-up of its column.
        reason: why the value is missing or incomplete; becomes a footnote.
        tied: whether it is within noise of the best of its column.
        under: further lines below the text and deviation.
        interval, detail, sources: what report.html shows when the cell is clicked: a confidence
            interval, a sentence, and the values that the text was computed from.
    """

    text: str
    deviation: str = ""
    mark: Mark = ""
    reason: str = ""
    tied: bool = False
    under: tuple[str, ...] = ()
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
    """A row of a table.

    Args:
        cells: the cells of each group of columns.
        section: whether a horizontal line stands above the row.
    """

    label: str
    cells: list[list[Cell]]
    section: bool = False

    @property
    def all_cells(self) -> list[Cell]:
        """The cells of all groups."""
        return [cell for cells in self.cells for cell in cells]


@dataclass(frozen=True)
class Table:
    """A numbered table.

    Args:
        label: for LaTeX's \\ref; the paper's own if it has such a table.
        stub: heading of the column of row labels.
        notes: sentences below the table.
        problems: sources of the problems that the table is about, named in its caption.
        listed: named notes, (name, text), each of which is printed on a line of its own.
    """

    number: int
    label: str
    caption: str
    stub: str
    groups: list[Group]
    rows: list[Row]
    notes: list[str]
    problems: Sequence[ProblemSource]
    listed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def full_caption(self) -> str:
        """The caption with a sentence on the source of the problems."""
        return f"{self.caption} {describe_sources(self.problems)}".rstrip()

    def cells(self) -> Iterator[Cell]:
        """Yield all cells, row by row."""
        return (cell for row in self.rows for cell in row.all_cells)

    @property
    def column_names(self) -> list[str]:
        """The titles of the columns with the title of their group: MBPP+ (made): Pass@1."""
        return [
            ": ".join(filter(None, [group.title, column]))
            for group in self.groups
            for column in group.columns
        ]

    @property
    def ranked(self) -> bool:
        """Return whether a cell is marked best or runner-up."""
        return any(cell.mark for cell in self.cells())

    @property
    def tied(self) -> bool:
        """Return whether a cell is within noise of the best."""
        return any(cell.tied for cell in self.cells())

    @property
    def footnotes(self) -> dict[str, str]:
        """The footnotes: reason -> key. Keys are a, b, c, ..., in order of first occurrence."""
        reasons = dict.fromkeys(cell.reason for cell in self.cells() if cell.reason)
        return {reason: letters(position) for position, reason in enumerate(reasons)}


def interval(show: Format, estimate: Estimate | None) -> str:
    """Return the interval of an estimate as text, [71.2%, 80.0%], or "" if it has none."""
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
    """Return a cell with an estimate, and below it its interval and further lines.

    Args:
        unknown: footnote of the cell if there is no estimate.
        under: the further lines.
        fields: other fields of the cell.
    """
    if estimate is None or estimate.value is None:
        return Cell(MISSING, reason=estimate.reason if estimate else unknown)
    lines = (interval(show, estimate), *under)
    return Cell(show(estimate.value), under=tuple(filter(None, lines)), **fields)


def letters(position: int) -> str:
    """Return the key of a footnote by its position: 0, 1, ..., 26 -> a, b, ..., aa."""
    text = ""
    while position >= 0:
        position, letter = divmod(position, 26)
        text = chr(ord("a") + letter) + text
        position -= 1
    return text
