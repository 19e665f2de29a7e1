"""Tables as plain data: cells of text, without TeX or HTML. The modules of `render` print them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rapid.benchmarks.problem_source import ProblemSource, describe_sources
from reports.formats import Format
from reports.statistics.estimates import Estimate

MISSING = "\N{EM DASH}"
NOT_APPLICABLE = "N/A"
Mark = Literal["", "best", "runner-up"]


@dataclass(frozen=True)
class Source:
    """A value of a run, from which a cell was computed.

    `path` is that of its file, below the folder that contains runs/ and evaluations/.
    """

    label: str
    text: str
    path: str


@dataclass(frozen=True)
class Cell:
    """An entry of a table.

    Args:
        deviation: standard deviation, printed after ±.
        mark: best or runner-up of its column.
        reason: why the value is missing or incomplete; becomes a footnote.
        tied: whether the value is within noise of the best of its column.
        extra_lines: further lines below the text and deviation.
        interval, detail, sources: a confidence interval, a sentence, and the values that the text
            was computed from. report.html shows them after a click on the cell.
    """

    text: str
    deviation: str = ""
    mark: Mark = ""
    reason: str = ""
    tied: bool = False
    extra_lines: tuple[str, ...] = ()
    interval: str = ""
    detail: str = ""
    sources: tuple[Source, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines below the text."""
        return ((f"± {self.deviation}",) if self.deviation else ()) + self.extra_lines

    @property
    def one_line(self) -> str:
        """The text and the lines below it, joined by spaces."""
        return " ".join([self.text, *self.lines])


@dataclass(frozen=True)
class Group:
    """Neighbouring columns under a common heading, or without one ("")."""

    title: str
    columns: list[str]


@dataclass(frozen=True)
class Row:
    """A row of a table, with the cells of each group of columns.

    A horizontal line stands above a row that starts a section.
    """

    label: str
    cells: list[list[Cell]]
    starts_section: bool = False

    @property
    def all_cells(self) -> list[Cell]:
        """The cells of all groups."""
        return [cell for cells in self.cells for cell in cells]


@dataclass(frozen=True)
class Table:
    """A numbered table.

    Args:
        label: for LaTeX's \\ref. A table of the paper has the same label as there.
        stub: heading of the column of row labels.
        notes: sentences below the table.
        problems: sources of the problems that the table is about, named in its caption.
        named_notes: notes as (name, text), each of which is printed on a line of its own.
    """

    number: int
    label: str
    caption: str
    stub: str
    groups: list[Group]
    rows: list[Row]
    notes: list[str]
    problems: Sequence[ProblemSource]
    named_notes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def full_caption(self) -> str:
        """The caption with a sentence on the source of the problems."""
        return f"{self.caption} {describe_sources(self.problems)}".rstrip()

    def iterate_cells(self) -> Iterator[Cell]:
        """Yield all cells, row by row."""
        return (cell for row in self.rows for cell in row.all_cells)

    @property
    def column_names(self) -> list[str]:
        """The titles of the columns after the title of their group: MBPP+ (made): Pass@1."""
        return [
            ": ".join(filter(None, [group.title, column]))
            for group in self.groups
            for column in group.columns
        ]

    @property
    def has_ranks(self) -> bool:
        """True if a cell is marked best or runner-up."""
        return any(cell.mark for cell in self.iterate_cells())

    @property
    def has_ties(self) -> bool:
        """True if a cell is within noise of the best."""
        return any(cell.tied for cell in self.iterate_cells())

    @property
    def footnotes(self) -> dict[str, str]:
        """The footnotes: reason -> key. Keys are a, b, c, ..., in order of first occurrence."""
        reasons = dict.fromkeys(cell.reason for cell in self.iterate_cells() if cell.reason)
        return {reason: get_footnote_key(position) for position, reason in enumerate(reasons)}


def format_interval(show: Format, estimate: Estimate | None) -> str:
    """Return the interval of an estimate as text, [71.2%, 80.0%], or "" if it has none."""
    if estimate is None or estimate.low is None:
        return ""
    return f"[{show(estimate.low)}, {show(estimate.high)}]"


def build_estimate_cell(
    show: Format,
    estimate: Estimate | None,
    missing_reason: str = "",
    extra_lines: tuple[str, ...] = (),
    **fields,
) -> Cell:
    """Return a cell with an estimate, its interval and further lines.

    If there is no value, the cell has a dash and the reason, which is `missing_reason` if there is
    no estimate.
    """
    if estimate is None or estimate.value is None:
        return Cell(MISSING, reason=estimate.reason if estimate else missing_reason)
    lines = (format_interval(show, estimate), *extra_lines)
    return Cell(show(estimate.value), extra_lines=tuple(filter(None, lines)), **fields)


def get_footnote_key(position: int) -> str:
    """Return the key of a footnote by its position: 0, 1, ..., 26 -> a, b, ..., aa."""
    text = ""
    while position >= 0:
        position, letter = divmod(position, 26)
        text = chr(ord("a") + letter) + text
        position -= 1
    return text
