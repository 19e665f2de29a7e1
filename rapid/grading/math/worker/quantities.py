"""Compares the sides of an equation as quantities: 3 hours = 180 minutes, \\frac35 = 60\\%.

A quantity is a number with units. It is written as a product for which `grammar.lark` has a value:
3 hours is (3 \\cdot 3600 u_{s}), with the name u_{s} for a second, and 60\\% is (60 \\cdot 0.01).
"""

import contextlib
import re

from forms import number_style
from formula import FUNCTION_NAMES, Formula, is_equal, parse_formula, value
from latex import Unreadable
from question import list_expressions, read_formula_texts
from sympy import Expr
from units import (
    CURRENCIES,
    CURRENCY_PATTERN,
    NO_UNIT,
    PERCENT,
    UNIT_WORDS,
    Unit,
    split_number,
    split_parts,
    write_divided_money_in_words,
)

# How much a measure is of another one, or as a number. Months and years have no fixed number of
# days, and other measures that are missing are independent of all others.
SIZES = {
    "mm": "0.001 m", "cm": "0.01 m", "km": "1000 m",
    "in": "0.0254 m", "ft": "0.3048 m", "yd": "0.9144 m", "mi": "1609.344 m",
    "mg": "0.001 g", "kg": "1000 g", "oz": "28.349523125 g", "lb": "453.59237 g",
    "ml": "0.001 l", "qt": "0.25 gal", "pt": "0.125 gal",
    "min": "60 s", "h": "3600 s", "day": "86400 s", "week": "604800 s", "yr": "12 month",
    "degree": r"\frac{\pi}{180}", "radian": "1", "percent": "0.01", "cent": "0.01 dollar",
}  # fmt: skip
# Where a number may begin; a unit, and the number before it; a currency's sign before a number.
START = r"(?:(?<=\\times)|(?<=\\cdot)|(?<=\\div)|(?<![\w.^)}\]]))"
NUMBER_WITH_UNIT = re.compile(
    rf"(?:{START}(?P<number>(?:(?:\d+ )?\d+/)?\d+(?:\.\d+)?|\.\d+)|(?<=[)}}\]]))"
    rf"(?P<unit>{UNIT_WORDS})"
)
PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)[ ~$]*(?:\\?%|-?percent)")
CURRENCY_SIGN = re.compile(rf"{START}( *)({CURRENCY_PATTERN})(?= *[\d.(\\])")


def drop_converted_sides(
    text: str, question_words: frozenset[str], names: frozenset[str], is_percent_asked: bool
) -> str:
    """Return an answer without the sides that state its last side's quantity in another way.

    Of \\theta = \\frac{\\pi}{6} = 30^\\circ the sides \\theta and 30^\\circ are left, and of
    4 \\times \\$3 = 12 the last side, with the unit of the side before it: 12 dollars. Sides that
    have another quantity are left too, and so are equations without units. In a list each equation
    is read.

    Args:
        question_words, names: see `units.split_unit`.
        is_percent_asked: whether a number without a unit is a percentage. Then the last side is not
            such a number if another side is in percent: 6000% is 60, but not 60%.
    """
    parts = split_parts(text)
    for index, part in enumerate(parts[::2]):
        is_percentage = split_number(part, question_words, names)[1] == PERCENT
        if is_percentage or not (is_percent_asked and re.search('%|"percent', part)):
            parts[2 * index] = _drop_converted_sides(part, question_words, names)
    return "".join(parts)


def _drop_converted_sides(
    equation: str, question_words: frozenset[str], names: frozenset[str]
) -> str:
    *sides, last = split_sides(equation)
    if not sides:
        return equation
    all_units = [list_written_units(side, question_words, names) for side in sides]
    # 30% = 30 is no equation, because percent is a number.
    units = [text for texts in all_units for text, unit in texts if unit != PERCENT]
    has_unit = split_number(last, question_words, names)[1] != NO_UNIT
    if not (any(all_units) or has_unit):
        return equation
    # If the last side has no unit, it is a number, or it has the unit of a side before it.
    for written_unit in ["", *dict.fromkeys(units[::-1])]:
        solution = last + written_unit
        quantity = parse_quantity(solution, question_words, names)
        are_equal = [
            quantity is not None and is_same_quantity(side, quantity, question_words, names)
            for side in sides
        ]
        if any(are_equal):
            other_sides = [side for side, drops in zip(sides, are_equal, strict=True) if not drops]
            return "=".join([*other_sides, solution])
        if has_unit:
            break
    return equation


def split_sides(equation: str) -> list[str]:
    """Return the sides of an equation. An equals sign in brackets, as in P(X = 2), splits none."""
    sides, depth = [""], 0
    for character in equation:
        depth += (character in "([{") - (character in ")]}")
        if character == "=" and not depth:
            sides.append("")
        else:
            sides[-1] += character
    return sides


def is_same_quantity(
    side: str, quantity: Formula, question_words: frozenset[str], names: frozenset[str]
) -> bool:
    """Return whether a side of an equation has a quantity.

    If only one term of the side has a unit, as in \\$20 - 5, the numbers may have it too.
    """
    side_quantity = parse_quantity(side, question_words, names)
    if side_quantity is None:
        return False
    with contextlib.suppress(Unreadable):
        if is_equal(side_quantity, quantity):
            return True
        number, rest = value(side_quantity).as_coeff_Add()
        written_units = list_written_units(side, question_words, names)
        if number and rest and len(written_units) == 1:
            unit = parse_quantity(f"1{written_units[0][0]}", question_words, names)
            # All of the rest must be a multiple of the unit.
            if unit is not None and (rest / value(unit)).is_Rational:
                return bool(rest + number * value(unit) == value(quantity))
    return False


def parse_quantity(
    text: str, question_words: frozenset[str], names: frozenset[str]
) -> Formula | None:
    """Parse an expression of numbers, names and units. The result is None for other text."""

    def write_product(match: re.Match) -> str:
        unit = read_written_unit(match["unit"], question_words, names)
        if unit is None:
            return match[0]
        product = "".join(f"\\cdot {write_size(name)}^{{{power}}}" for name, power in sorted(unit))
        return f"({match['number']}{product})" if match["number"] else product

    try:
        return parse_formula(NUMBER_WITH_UNIT.sub(write_product, write_money_in_words(text)))
    except Unreadable:
        return None


def list_written_units(
    text: str, question_words: frozenset[str], names: frozenset[str]
) -> list[tuple[str, Unit]]:
    """Return the units in LaTeX, each after the text that it is, such as "feet" "per" "hour"."""
    texts = [match["unit"] for match in NUMBER_WITH_UNIT.finditer(write_money_in_words(text))]
    return [
        (text, unit) for text in texts if (unit := read_written_unit(text, question_words, names))
    ]


def write_money_in_words(text: str) -> str:
    """Return LaTeX with 1 dollar times 3 in place of $3."""
    return CURRENCY_SIGN.sub(
        lambda sign: f'{sign[1]}1 "{CURRENCIES[sign[2]]}" \\cdot ',
        write_divided_money_in_words(text),
    )


def read_written_unit(
    text: str, question_words: frozenset[str], names: frozenset[str]
) -> Unit | None:
    """Return the unit that a text is; None if it is none, as it may be a product of `names`."""
    number, unit = split_number(f"1{text}", question_words, names)
    return unit if number.strip() == "1" and unit != NO_UNIT else None


def write_size(name: str) -> str:
    """Return the size of a unit as LaTeX: its own name u_{name}, or that of another one."""
    number, _, base = SIZES.get(name, f"1 {name}").partition(" ")
    return f"({number} u_{{{base}}})" if base else f"({number})"


def list_stated_shares(question: str) -> list[Expr]:
    """Return the values of the percentages and decimals in a question, as in 75\\% and 0.75."""
    percentages = PERCENTAGE.findall(question)
    percentages += [
        split_number(text, frozenset(), frozenset())[0]
        for text, _ in read_formula_texts(question)
        if text.endswith("%")
    ]
    expressions = list_expressions(question, FUNCTION_NAMES)
    shares = [value(part) for part in expressions if number_style(part) == "decimal"]
    for text in percentages:
        with contextlib.suppress(Unreadable):
            shares.append(value(parse_formula(text)) / 100)
    return shares
