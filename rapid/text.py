"""Formats durations, sizes, lists and tables as plain text."""

import difflib
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

MINUTE, HOUR = 60, 3600
MIN_DAYS_SECONDS = 72 * HOUR  # durations of at least this many seconds are in days and hours
# Unicode categories that change what a terminal shows: control and format characters (such as those
# for the direction of writing), surrogates, separators of lines and paragraphs.
CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def format_duration(seconds: float) -> str:
    """Return a duration in the unit that suits it: 8.3s, 12.7m, 4h42m, 3d 4h."""
    # Compared as printed, so that 59.97 is 1.0m and not 60.0s.
    if round(seconds, 1) < MINUTE:
        return f"{seconds:.1f}s"
    if round(seconds / MINUTE, 1) < HOUR / MINUTE:
        return f"{seconds / MINUTE:.1f}m"
    hours, minutes = divmod(round(seconds / MINUTE), 60)
    if seconds < MIN_DAYS_SECONDS:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(round(seconds / HOUR), 24)
    return f"{days}d {hours}h"


def format_size(count: float) -> str:
    """Return a number of bytes in decimal units: 1.5 MB, 2.0 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def shorten_commit(commit: str, digits: int = 12) -> str:
    """Return the first digits of a commit, with its suffix (+dirty) if it has one."""
    digest, plus, dirty = commit.partition("+")
    return digest[:digits] + plus + dirty


def join_words(items: Sequence[str], last: str = "and") -> str:
    """Join items as in a sentence: a; a and b; a, b and c."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean NAME?" with the closest of `names`; "" if no name is close."""
    names_by_lower_case = {candidate.lower(): candidate for candidate in names}
    closest = difflib.get_close_matches(name.lower(), names_by_lower_case, 1)
    return f"; did you mean {names_by_lower_case[closest[0]]}?" if closest else ""


def wrap_text(text: str, width: int, indent: str = "    ", may_split: bool = True) -> list[str]:
    """Wrap a text into lines of at most `width` characters between words, but not at hyphens.

    Args:
        indent: prefix of each line except the first.
        may_split: whether to cut words that are longer than a line.
    """
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=may_split,
        break_on_hyphens=False,
    )


def escape_control_chars(text: str) -> str:
    r"""Replace control characters, which terminals execute, by escapes such as \x1b."""
    return re.sub(r"[^\n\t -~]", _escape_control_char, text)


def _escape_control_char(match: re.Match) -> str:
    char = match[0]
    return ascii(char)[1:-1] if unicodedata.category(char) in CONTROL_CATEGORIES else char


def align_columns(
    rows: Iterable[Sequence[str]], flush_left: int | None = None, rule: bool = False
) -> list[str]:
    """Return rows of cells as lines, with each column as wide as its widest cell.

    Args:
        rows: cells of the heading, then of each row; all rows have the same number of cells.
        flush_left: number of columns that are flush left; the others are flush right. None: all.
        rule: whether to draw a line of dashes below the heading.
    """
    rows = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    if rule:
        rows.insert(1, ["-" * width for width in widths])
    flush_left = len(widths) if flush_left is None else flush_left
    formats = [
        f"{'<' if column < flush_left else '>'}{width}" for column, width in enumerate(widths)
    ]
    return ["  ".join(map(format, row, formats)).rstrip() for row in rows]


def render_markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; columns after the first are flush right."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
