"""The form of a formula: its unevaluated operations, its shape, whether it is simplified.

An operation is unevaluated if it is written down but not carried out: 34+57 equals 91, but has an
unevaluated sum. So the form is determined from the tree that `formula` parses, before evaluation.
`factors` lists the factors of a formula as (1, factor) or (-1, divisor).
"""

import re
from collections.abc import Iterator
from math import gcd, prod

import sympy
from formula import (
    PRODUCTS,
    Formula,
    factors,
    is_integer,
    kind,
    operands,
    split_mixed_number,
    terms,
    tokens,
    value,
)
from lark import Token
from sympy import Expr, Rational


def number_style(formula: Formula) -> str:
    """Return the style in which a number is written; "" if the formula is not a single number.

    The styles are "integer", "decimal", "repeating" (decimal), "fraction", "mixed" (1 1/2) and
    "scientific". A number may have a minus sign.
    """
    if is_negated(formula):
        term = formula.children[1]
        # -(-5) and -(2 + 3) are not single numbers.
        return "" if "-" in tokens(term)[:1] or kind(term) == "sum" else number_style(term)
    if kind(formula) == "NUMBER":
        return "integer" if is_integer(formula) else "decimal"
    match factors(formula):
        case [(1, above), (-1, below)] if is_integer(drop_sign(above)) and is_integer(below):
            return "fraction"
        case [(1, number), (1, ten)] if kind(ten) == "power" and ten.children[0] == "10":  # 4*10^5
            is_scientific = kind(number) == "NUMBER" and number_style(ten.children[1]) == "integer"
            return "scientific" if is_scientific else ""
    return {"REPEATING": "repeating", "MIXED": "mixed"}.get(kind(formula), "")


def drop_sign(formula: Formula) -> Formula:
    """Return a formula without its minus sign."""
    return formula.children[1] if is_negated(formula) else formula


def is_negated(formula: Formula) -> bool:
    """Return whether a formula is a term with a minus sign."""
    return kind(formula) == "sum" and len(formula.children) == 2 and formula.children[0] == "-"


def has_sum(formula: Formula) -> bool:
    """Return whether a formula is a sum of terms, or a product or power of one."""
    if kind(formula) == "sum":
        return not is_negated(formula) or has_sum(formula.children[1])
    if kind(formula) == "power":
        return has_sum(formula.children[0])
    return kind(formula) in PRODUCTS and any(map(has_sum, operands(formula)))


# --- What is left unevaluated ---


def find_unevaluated(formula: Formula) -> set[str]:
    """Return names for the operations that a formula leaves unevaluated, such as "sum of numbers".

    The set also has the names of letters and functions, and "root" for roots. An answer may leave
    unevaluated only what the known answer leaves unevaluated too.
    """
    if number_style(formula):
        return set(find_unevaluated_in_number(drop_sign(formula)))
    if kind(formula) == "NAME":
        return {str(formula)}
    return set(find_unevaluated_at_top(formula)).union(*map(find_unevaluated, operands(formula)))


def has_arithmetic(formula: Formula) -> bool:
    """Return whether a formula leaves an operation on numbers unevaluated."""
    return any(name.endswith("of numbers") for name in find_unevaluated(formula))


def find_unevaluated_in_number(number: Formula) -> Iterator[str]:
    """Yield what a single number leaves unevaluated, such as 6/3, 1 5/4 or 42 times 10^5."""
    style = number_style(number)
    if style == "fraction" and value(number).is_Integer:
        yield "product of numbers"
    if style == "mixed" and not 0 < split_mixed_number(number)[1] < 1:
        yield "sum of numbers"
    if style == "scientific":
        yield "scientific notation"
        if not 1 <= value(number.children[0]) < 10:
            yield "product of numbers"


def find_unevaluated_at_top(formula: Formula) -> Iterator[str]:
    """Yield what the outermost operation of a formula leaves unevaluated, without its operands."""
    rule = "product" if kind(formula) in PRODUCTS else kind(formula)
    if value(formula).is_Rational:
        yield f"{rule} of numbers"
    match rule:
        case "sum":
            yield from find_unevaluated_in_sum(terms(formula))
        case "product":
            yield from find_unevaluated_in_product(formula)
        case "power":
            yield from find_unevaluated_in_power(*formula.children)
        case "root":
            yield "root"
            if kind(formula.children[-1]) == "power" or has_sum(formula.children[-1]):
                yield "root of a power or sum"
        case "absolute":
            yield "signs" if is_negated(formula.children[0]) else rule
        case "applied":
            # exp(x) counts like e^x, in which "e" is found as a letter.
            yield {"\\exp": "e"}.get(formula.children[0], str(formula.children[0]))
        case _:
            yield rule


def find_unevaluated_in_sum(parts: list[tuple[str, Formula]]) -> Iterator[str]:
    """Yield what a sum leaves unevaluated: like terms, zeros, constants, two signs in a row."""
    # Each term as a number times a symbolic part: like terms have the same symbolic part.
    values = [value(term).as_coeff_Mul() for _, term in parts]
    if len({symbolic for _, symbolic in values}) < len(values) or any(c == 0 for c, _ in values):
        yield "sum of numbers"  # 2x + 3x, x + 0
    # 1 + pi: no letters, so a number that is not worked out.
    if len(parts) > 1 and not any(symbolic.free_symbols for _, symbolic in values):
        yield "sum of constants"
    if any(is_negated(term) for _, term in parts):
        yield "signs"


def find_unevaluated_in_power(base: Formula, exponent: Formula) -> Iterator[str]:
    """Yield what a power leaves unevaluated: powers of numbers, of powers, and of products."""
    exponent_value, base_value = value(exponent), value(base)
    is_letter = kind(base) == "NAME" and base != "i"
    if not exponent_value.is_Rational:
        yield "exponential"
    elif not exponent_value.is_Integer:
        yield "root"
    elif (  # (x^2)^3, x^1, 2^3
        kind(base) in ("power", "root")
        or exponent_value in (0, 1)
        or not (base_value.free_symbols or is_letter)
    ):
        yield "power of numbers"
    # (-x)^2, (xy)^2, (2x + 2)^2
    if is_negated(base) or kind(base) in PRODUCTS or (has_sum(base) and content(base) != 1):
        yield "power of a product"
    if exponent_value.is_negative and base_value.free_symbols:
        yield "denominator"


def find_unevaluated_in_product(formula: Formula) -> Iterator[str]:
    """Yield what a product or fraction leaves unevaluated: factors to multiply or cancel."""
    parts = factors(formula)
    above, below, number_above, number_below = split_quotient(formula)
    for side, divisors in ((above, below), (below, [])):
        bases = [get_power_base(part) for part in side if not number_style(part)]
        numbers = [part for part in side if number_style(part) or is_power_of_numbers(part)]
        if len(numbers) > 1 or len(bases) > len(set(bases)):  # 2*3, x*x
            yield "product of numbers"
        trivial = [part for part in side if number_style(part) and abs(value(part)) in (0, 1)]
        if trivial and (len(side) > 1 or not divisors):  # 1x, 0x, x/1, but not 1/x
            yield "product of numbers"
    if set(map(get_power_base, above)) & set(map(get_power_base, below)):  # x/x, x^2/x
        yield "product of numbers"
    # A number divided by a number: one of them is a fraction, or they divide without remainder.
    if number_below != 1 and (
        number_above.q > 1 or number_below.q > 1 or number_above % number_below == 0
    ):
        yield "product of numbers"
    # Two roots that could be one: on the same side, or on both sides with a common factor.
    surds = [[value(part) for part in side if is_surd(part)] for side in (above, below)]
    if max(map(len, surds)) > 1 or (all(surds) and not are_coprime(*surds)):
        yield "product of roots"
    # Without letters, a product with a sum such as sqrt(3)(1 + sqrt(2)) could be multiplied out.
    irrational = [part for _, part in parts if not number_style(part)]
    if not value(formula).free_symbols and len(irrational) > 1 and any(map(has_sum, irrational)):
        yield "product of sums"
    if any(map(is_divided, operands(formula))) and below:  # (x/y)/z
        yield "quotient of quotients"
    if any(map(is_negated, [part for _, part in parts][1:])):
        yield "signs"
    if any(value(part).free_symbols or has_sum(part) or part == "i" for part in below):
        yield "denominator"


def split_quotient(formula: Formula) -> tuple[list[Formula], list[Formula], Rational, Rational]:
    """Split a product or fraction at its fraction line.

    Returns:
        The factors above the line, the factors below it, and for each side the product of the
        numbers (`content`) of its factors.
    """
    above, below = ([part for side, part in factors(formula) if side == sign] for sign in (1, -1))
    number_above, number_below = (
        prod(map(content, side), start=sympy.Integer(1)) for side in (above, below)
    )
    return above, below, number_above, number_below


def is_surd(factor: Formula) -> bool:
    """Return whether a factor is a root, or a power with a fraction for its exponent."""
    is_power = kind(factor) == "power" and value(factor.children[1]).is_Rational
    return kind(factor) == "root" or (is_power and not value(factor.children[1]).is_Integer)


def are_coprime(above: list[Expr], below: list[Expr]) -> bool:
    """Return whether the squares of two products of square roots have no common factor."""
    return sympy.gcd(*(prod(side) ** 2 for side in (above, below))) == 1


def is_divided(formula: Formula) -> bool:
    """Return whether a formula is a quotient other than a number such as 1/2."""
    return not number_style(formula) and any(side < 0 for side, _ in factors(formula))


def is_power_of_numbers(formula: Formula) -> bool:
    """Return whether a formula is a power with a number as base and as exponent."""
    return kind(formula) == "power" and all(map(number_style, formula.children))


def content(formula: Formula) -> Rational:
    """Return the largest positive number that divides all terms of a formula."""
    number = value(formula)
    return abs(number.as_content_primitive()[0] if number.is_Add else number.as_coeff_Mul()[0])


# --- Shape, and simplest form ---


def shape(formula: Formula) -> str:
    """Return the shape of a formula.

    For a number it is the style (`number_style`). For other formulas:

    - "expanded": a product without sums in it, or a sum of such products;
    - "factored": a product with a factor that is an expanded sum;
    - "quotient": an expanded or factored formula divided by a letter or a sum;
    - "sum of quotients": a sum with such a quotient;
    - "mixed up": anything else.
    """
    formula = drop_sign(formula)
    if style := number_style(formula):
        return style
    if kind(formula) == "sum":
        parts = [term for _, term in terms(formula)]
        if any(map(has_sum, parts)):
            return "mixed up"
        has_quotients = any("denominator" in find_unevaluated(part) for part in parts)
        return "sum of quotients" if has_quotients else "expanded"
    parts = [(side, get_power_base(part)) for side, part in factors(formula)]
    if any(has_sum(part) and shape(part) != "expanded" for _, part in parts):
        return "mixed up"
    if "denominator" in find_unevaluated(formula):
        return "quotient"
    sums = [part for _, part in parts if has_sum(part)]
    # A sum that is the only factor above the line, as in (x+1)/2, is not factored.
    is_one_sum = len(sums) == 1 == len([part for side, part in parts if side > 0])
    return "factored" if sums and (kind(formula) == "power" or not is_one_sum) else "expanded"


def get_power_base(formula: Formula) -> Formula:
    """Return the base of a power; a formula that is no power is returned unchanged."""
    return formula.children[0] if kind(formula) == "power" else formula


def is_simplest(formula: Formula) -> bool:
    """Return whether fractions are reduced, roots are simplified, and factors are irreducible."""
    formula = drop_sign(formula)
    if kind(formula) == "MIXED":
        return split_mixed_number(formula)[1].q == int(re.findall(r"\d+", formula)[-1])
    if isinstance(formula, Token):
        return True
    above, below, number_above, number_below = split_quotient(formula)
    # A number that could be cancelled, or a root in the denominator.
    if gcd(number_above.p, number_above.q * number_below.p) != 1 or any(
        "root" in find_unevaluated(part) for part in below
    ):
        return False
    if kind(formula) == "power" and value(formula.children[1]).is_negative:
        return False
    if is_surd(formula) and not is_simplified_root(formula):
        return False
    # Letters that could be cancelled.
    if (
        shape(formula) == "quotient"
        and sympy.gcd(*(prod(map(value, side)) for side in (above, below))).free_symbols
    ):
        return False
    if shape(formula) == "factored" and not all(is_prime(get_power_base(part)) for part in above):
        return False
    return all(map(is_simplest, operands(formula)))


def is_simplified_root(surd: Formula) -> bool:
    """Return whether no factor can be taken out of a root, and its index cannot be smaller."""
    # sympy simplifies a root: it takes out a factor, `number`, or writes the `root` that is left
    # with a smaller index, which is the denominator of its exponent.
    number, root = value(surd).as_coeff_Mul()
    index = 2  # of a square root
    if kind(surd) == "power" or len(surd.children) == 2:
        # Child 1 of a power is its exponent, child 0 of a root with an index is the index.
        index = value(surd.children[kind(surd) == "power"])
        index = index.q if kind(surd) == "power" else index
    exponent = root.as_base_exp()[1]
    return number == 1 and (not exponent.is_Rational or exponent.q == index)


def is_prime(factor: Formula) -> bool:
    """Return whether a factor is not a sum, or is a sum that is irreducible over the rationals."""
    if not has_sum(factor):
        return True
    try:
        primes = sympy.factor_list(value(factor))[1]
    except sympy.PolynomialError:  # the sum has quotients in it
        return True
    return content(factor) == 1 and sum(times for _, times in primes) == 1
