"""Numbers as the short texts of a table, in Unicode; `render.latex` turns these into TeX.

A format of a column takes `like`, the mean that a standard deviation stands under: the deviation is
printed in the mean's unit and with its digits. Durations are printed by `rapid.text`.

Shares of whole completions can lie halfway between two texts: 51.25 %. They are rounded away from
zero, as by hand; errors of floating point in the last bit do not change that.
"""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal

Format = Callable[..., str]
MINUS = "\N{MINUS SIGN}"


def percent(share: float, like: float | None = None) -> str:
    """Return a share of 1 as percent: 0.123 -> 12.3%."""
    return f"{_tenths(100 * share)}%"


def staleness(value: float, like: float | None = None) -> str:
    """Return two decimals, or two significant digits of less: 0.08, 0.0031."""
    scale = abs(value if like is None else like)
    decimals = 2
    if 1e-6 <= scale < 0.005:
        decimals = 1 - math.floor(math.log10(scale))
    return f"{value:.{decimals}f}"


def megabytes(value: float, like: float | None = None) -> str:
    """Return 1e6 bytes without decimals: 1,234."""
    return f"{value:,.0f}"


def plain(value: float, like: float | None = None) -> str:
    """Return four significant digits: 0.5312, 3.817, 1200."""
    return f"{value:.4g}".replace("-", MINUS)


def correlation(r: float) -> str:
    """Return three decimals with a true minus sign; no negative zero."""
    return f"{r:z.3f}".replace("-", MINUS)


def points(share: float) -> str:
    """Return a difference of shares in percentage points, with its sign: -0.057 -> -5.7."""
    text = f"{_tenths(100 * share):+}"
    return "0.0" if float(text) == 0 else text.replace("-", MINUS)


def _tenths(value: float) -> Decimal:
    """Return a number with one decimal; the rounding of floating point is taken out first."""
    return Decimal(f"{value:.9f}").quantize(Decimal("0.1"), ROUND_HALF_UP)


def ratio(value: float) -> str:
    """Return two decimals: 0.41."""
    return f"{value:.2f}"


def p_value(p: float, equal: str = "") -> str:
    """Return p with three decimals, and no zero: 0.012, < 0.001; `equal` stands before the one."""
    return "< 0.001" if p < 0.001 else f"{equal}{p:.3f}"
