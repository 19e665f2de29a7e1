"""Numbers as the short texts of a table, in Unicode. `latex` turns these into TeX.

Every function takes `like`, the mean that a standard deviation stands under: the deviation is
printed in the mean's unit and with its digits.
"""

import math
from collections.abc import Callable

Format = Callable[..., str]

MINUTE, HOUR = 60, 3600
MINUS = "\N{MINUS SIGN}"


def percent(share: float, like: float | None = None) -> str:
    """A share of 1 as percent: 0.123 -> 12.3%."""
    return f"{100 * share:.1f}%"


def duration(seconds: float, like: float | None = None) -> str:
    """Seconds, minutes, or hours and minutes: 8.3s, 12.7m, 4h42m."""
    scale = seconds if like is None else like
    # Compared as printed, so that 59.97 is 1.0m and not 60.0s.
    if round(scale, 1) < MINUTE:
        return f"{seconds:.1f}s"
    if round(scale / MINUTE, 1) < HOUR / MINUTE or (like is not None and seconds < HOUR):
        return f"{seconds / MINUTE:.1f}m"
    hours, minutes = divmod(round(seconds / MINUTE), 60)
    return f"{hours}h{minutes:02d}m"


def staleness(value: float, like: float | None = None) -> str:
    """Two decimals; two significant digits where that would leave nothing: 0.08, 0.0031."""
    scale = abs(value if like is None else like)
    decimals = 2
    if 1e-6 <= scale < 0.005:
        decimals = 1 - math.floor(math.log10(scale))
    return f"{value:.{decimals}f}"


def correlation(r: float, like: float | None = None) -> str:
    """Three decimals with a true minus sign; no negative zero."""
    text = f"{r:.3f}"
    if float(text) == 0:
        text = "0.000"
    return text.replace("-", MINUS)


def points(share: float, like: float | None = None) -> str:
    """A difference of shares in percentage points, with its sign: -0.057 -> -5.7, 0.02 -> +2.0."""
    text = f"{100 * share:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", MINUS)


def ratio(value: float, like: float | None = None) -> str:
    """0.41."""
    return f"{value:.2f}"


def megabytes(value: float, like: float | None = None) -> str:
    """1e6 bytes, without decimals: 1,234."""
    return f"{value:,.0f}"


def p_value(p: float) -> str:
    """Three decimals, and no zero: 0.012, < 0.001."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def plain(value: float, like: float | None = None) -> str:
    """Four significant digits: 0.5312, 3.817, 1200."""
    return f"{value:.4g}".replace("-", MINUS)


def interval(show: Format, low: float, high: float) -> str:
    """[71.2%, 80.0%]."""
    return f"[{show(low)}, {show(high)}]"


def listing(items: list[str], last: str = "and") -> str:
    """a; a and b; a, b and c."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"
