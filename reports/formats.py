"""Formats numbers as short Unicode texts for tables; `render.tex` escapes these for TeX.

The format of a column is a function `format(value, mean)`. It prints means and standard deviations.
For a standard deviation it gets the mean as the second argument, and prints the deviation with the
mean's unit and number of decimals. All durations in a column have the same unit. Formats of
comparisons and tests, which have no standard deviation, take the value only.

A share of completions, such as 51.25 %, can lie exactly halfway between two printed values. It is
rounded away from zero, as by hand, even if floating point has an error in its last bit.
"""

import math
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Context, Decimal

from rapid.text import HOUR, MINUTE

Format = Callable[..., str]
MINUS = "\N{MINUS SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"
# Units of durations: symbol, length in seconds, and a limit in seconds. A column has the first unit
# whose limit its longest duration does not reach, or else hours.
TIME_UNITS = [("ms", 1e-3, 0.1), ("s", 1, 10 * MINUTE), ("min", MINUTE, 10 * HOUR)]


def percent(share: float, mean: float | None = None) -> str:
    """Return a share in percent: 0.123 -> 12.3%."""
    return f"{_tenths(100 * share)}%".replace("-", MINUS)


def choose_time_unit(longest: float) -> tuple[str, float]:
    """Return the symbol and the length in seconds of the unit for durations up to `longest`."""
    units = ((symbol, length) for symbol, length, limit in TIME_UNITS if longest < limit)
    return next(units, ("h", HOUR))


def choose_duration_format(seconds: Iterable[float]) -> Format:
    """Return the format for a column of mean durations in seconds.

    The longest duration decides the unit of the column (ms, s, min or h). The shortest decides the
    number of decimals: it has three significant digits, but at most three decimals. Examples: 2.31s
    and 14.60s; 12.7min.
    """
    durations = sorted(duration for duration in seconds if 0 < duration < math.inf)
    shortest, longest = (durations[0], durations[-1]) if durations else (1.0, 1.0)
    symbol, length = choose_time_unit(longest)
    decimals = min(3, max(0, 2 - math.floor(math.log10(shortest / length))))

    def show(value: float, mean: float | None = None) -> str:
        return f"{value / length:,.{decimals}f}{symbol}"

    return show


def staleness(value: float, mean: float | None = None) -> str:
    """Return a staleness with two decimals, or below 0.005 with two significant digits.

    Examples: 0.08, 0.0031.
    """
    scale = abs(value if mean is None else mean)
    decimals = 2
    if 1e-6 <= scale < 0.005:
        decimals = 1 - math.floor(math.log10(scale))
    return f"{value:.{decimals}f}"


def megabytes(value: float, mean: float | None = None) -> str:
    """Return megabytes without decimals: 1,234."""
    return f"{value:,.0f}"


def plain(value: float, mean: float | None = None) -> str:
    """Return four significant digits, halves away from zero: 0.5312, 3.817, 1200."""
    # Twelve digits are kept first, which removes errors of floating point.
    rounded = Context(prec=4, rounding=ROUND_HALF_UP).create_decimal(f"{value:.12g}")
    return f"{float(rounded):.4g}".replace("-", MINUS)


def correlation(r: float) -> str:
    """Return a correlation with three decimals and a typographic minus sign, never as -0.000."""
    return f"{r:z.3f}".replace("-", MINUS)


def points(share: float) -> str:
    """Return a difference of shares in percentage points, with its sign: -0.057 -> -5.7."""
    text = f"{_tenths(100 * share):+}"
    return "0.0" if float(text) == 0 else text.replace("-", MINUS)


def _tenths(value: float) -> Decimal:
    """Return a number rounded to one decimal, halves away from zero.

    The ninth decimal is rounded first, which removes errors of floating point.
    """
    return Decimal(f"{value:.9f}").quantize(Decimal("0.1"), ROUND_HALF_UP)


def ratio(value: float) -> str:
    """Return two decimals: 0.41."""
    return f"{value:.2f}"


def p_value(p: float, prefix: str = "") -> str:
    """Return p with three decimals, 0.012, or as a bound, < 0.001.

    A p that would round to 0.050 gets enough decimals to show on which side of 0.05 it lies. The
    prefix "= " stands before a p that is not a bound.
    """
    if p < 0.001:
        return "< 0.001"
    texts = (f"{p:.{decimals}f}" for decimals in range(3, 9))
    return prefix + next((text for text in texts if p == 0.05 or float(text) != 0.05), f"{p:.3f}")
