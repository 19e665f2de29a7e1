"""Prints the figures of the arena's tables, without the code of the reports."""

from rapid.algorithms.variant_names import parse
from tests import arena_statistics as recomputed
from tests.arena_statistics import Result


def print_points(value: float) -> str:
    text = f"{recomputed.round_half_up(100 * value):+}".replace("-", "\N{MINUS SIGN}")
    return "0.0" if text[1:] == "0.0" else text


def print_percent(value: float) -> str:
    return f"{recomputed.round_half_up(100 * value)}%"


def print_ratio(value: float) -> str:
    return f"{value:.2f}"


def print_p(p: float) -> str:
    if p < 0.001:
        return "< 0.001"
    return next(t for d in range(3, 9) if (t := f"{p:.{d}f}").rstrip("0") != "0.05" or p == 0.05)


def print_result(show, result: Result) -> str:
    """Return an estimate with its interval."""
    if result.value is None:
        return "\N{EM DASH}"
    if result.low is None:  # too few values for an interval
        return show(result.value)
    return f"{show(result.value)} [{show(result.low)}, {show(result.high)}]"


def label(name: str) -> str:
    """Return the label of an algorithm."""
    plain, *changes = name.split(",")
    return ", ".join([parse(plain).label, *(change.replace("=", " = ") for change in changes)])
