"""Numbers as the short texts of a table, in Unicode; `render.latex` turns these into TeX.

A format of a column takes `like`, the mean that a standard deviation stands under: the deviation is
printed in the mean's unit and with its digits. All durations of a column have one unit.

Shares of whole completions can lie halfway between two texts: 51.25 %. They are rounded away from
zero, as by hand; errors of floating point in the last bit do not change that.
"""

import math
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal

from rapid.text import HOUR, MINUTE

Format = Callable[..., str]
MINUS = "\N{MINUS SIGN}"
# Units of durations with their seconds, and the longest duration that a column in them may have.
TIME_UNITS = [("ms", 1e-3, 0.1), ("s", 1, 10 * MINUTE), ("min", MINUTE, 10 * HOUR)]


def percent(share: float, like: float | None = None) -> str:
    """Return a share of 1 as percent: 0.123 -> 12.3%."""
    return f"{_tenths(100 * share)}%".replace("-", MINUS)


def time_unit(longest: float) -> tuple[str, float]:
    """Return the unit for durations up to this one, ms, s, min or h, and its seconds."""
    units = ((sign, length) for sign, length, limit in TIME_UNITS if longest < limit)
    return next(units, ("h", HOUR))


def durations(seconds: Iterable[float]) -> Format:
    """Return the format of a column with these durations, the means that it prints.

    The longest decides the unit (ms, s, min or h), so that all cells have the same. The shortest
    has three significant digits, but no more than three decimals: 2.31s and 14.60s, 12.7min.
    """
    lengths = sorted(length for length in seconds if 0 < length < math.inf)
    shortest, longest = (lengths[0], lengths[-1]) if lengths else (1.0, 1.0)
    sign, length = time_unit(longest)
    decimals = min(3, max(0, 2 - math.floor(math.log10(shortest / length))))

    def show(value: float, like: float | None = None) -> str:
        return f"{value / length:,.{decimals}f}{sign}"

    return show


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
    """Return p with three decimals, and no zero: 0.012, < 0.001; `equal` stands before the one.

    What rounds to 0.050 gets as many decimals as show on which side of 0.05 it lies.
    """
    if p < 0.001:
        return "< 0.001"
    texts = (f"{p:.{decimals}f}" for decimals in range(3, 9))
    return equal + next((text for text in texts if p == 0.05 or float(text) != 0.05), f"{p:.3f}")
