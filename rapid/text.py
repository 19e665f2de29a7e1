"""Numbers and tables as plain text for a reader: durations, sizes, listings and columns."""

import difflib
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

MINUTE, HOUR = 60, 3600
DAYS_FROM = 72 * HOUR
# Categories of characters: control, format (of the direction of writing, too), halves, separators.
ORDERS = ("Cc", "Cf", "Cs", "Zl", "Zp")


def duration(seconds: float, like: float | None = None) -> str:
    """Return a duration in the unit that suits it: 8.3s, 12.7m, 4h42m, 3d 4h.

    A standard deviation is printed in the unit of `like`, the mean that it stands under.
    """
    scale = seconds if like is None else like
    # Compared as printed, so that 59.97 is 1.0m and not 60.0s.
    if round(scale, 1) < MINUTE:
        return f"{seconds:.1f}s"
    if round(scale / MINUTE, 1) < HOUR / MINUTE or (like is not None and seconds < HOUR):
        return f"{seconds / MINUTE:.1f}m"
    hours, minutes = divmod(round(seconds / MINUTE), 60)
    return f"{hours}h{minutes:02d}m" if seconds < DAYS_FROM else f"{hours // 24}d {hours % 24}h"


def size(count: float) -> str:
    """Return a number of bytes in decimal units: 1.5 MB, 2.0 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def short(commit: str, digits: int = 12) -> str:
    """Return the first digits of a commit, and what follows it (+dirty)."""
    digest, plus, dirty = commit.partition("+")
    return digest[:digits] + plus + dirty


def listing(items: Sequence[str], last: str = "and") -> str:
    """Return items as in a sentence: a; a and b; a, b and c."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def suggest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean NAME?" with the nearest of these names; "" where none is near."""
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    nearest = difflib.get_close_matches(name.lower(), by_lower_case, 1)
    return f"; did you mean {by_lower_case[nearest[0]]}?" if nearest else ""


def wrap(text: str, width: int, indent: str = "    ", may_split: bool = True) -> list[str]:
    """Return a text as lines of this width, split between words: a path stays whole.

    Args:
        may_split: whether a word is split that is longer than a line.
    """
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=may_split,
        break_on_hyphens=False,
    )


def shown(text: str) -> str:
    r"""Return a text as a terminal may have it: what is no sign but an order to it is \x1b."""
    return re.sub(r"[^\n\t -~]", _sign, text)


def _sign(found: re.Match) -> str:
    is_order = unicodedata.category(found[0]) in ORDERS
    return ascii(found[0])[1:-1] if is_order else found[0]


def columns(
    rows: Iterable[Sequence[str]], left: int | None = None, rule: bool = False
) -> list[str]:
    """Return rows of cells as lines of columns of equal width.

    Args:
        rows: the head first; all of one length.
        left: number of columns that are flush left, the rest is flush right; all where `None`.
        rule: whether a line of dashes stands below the head.
    """
    rows = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    if rule:
        rows.insert(1, ["-" * width for width in widths])
    left = len(widths) if left is None else left
    signs = ["<" if position < left else ">" for position in range(len(widths))]
    return [
        "  ".join(
            f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; columns after the first are flush right."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
