"""Formats the numbers and labels of the arena's tables, without the code of the reports."""

from rapid.algorithms.variant_names import parse_variant_name
from tests import arena_statistics as recomputed


def format_points(value: float) -> str:
    text = f"{recomputed.round_half_up(100 * value):+}".replace("-", "\N{MINUS SIGN}")
    return "0.0" if text[1:] == "0.0" else text


def format_percent(value: float) -> str:
    return f"{recomputed.round_half_up(100 * value)}%"


def label(name: str) -> str:
    """Return the label of an algorithm."""
    base_name, *changes = name.split(",")
    return ", ".join(
        [parse_variant_name(base_name).label, *(change.replace("=", " = ") for change in changes)]
    )
