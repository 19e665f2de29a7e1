"""The form of a formula: its unevaluated operations, its shape, whether it is in simplest form.

An operation is unevaluated if it is written down but not carried out: 34+57 equals 91, but has an
unevaluated sum. So the form is determined from the tree that `formula` parses, before evaluation.
`grammar.lark` describes the kinds of trees. `factors` lists the factors of a formula as (1, factor)
or (-1, divisor).
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator
from math import gcd, prod

import sympy
from formula import (
    PRODUCT_KINDS,
    Formula,
    factors,
    is_exponential,
    is_integer,
    kind,
    operands,
    split_mixed_number,
    terms,
    tokens,
    value,
)
from lark import Token
from signs import drop_minus_sign, has_sign_in_argument, has_two_signs, is_negated
from sympy import Rational
from zeros import denest_roots, factor_polynomial, get_primitive_base, split_exponentials


def number_style(formula: Formula) -> str:
    """Return the style in which a number is written; "" if the formula is not a single number.

    The styles are "integer", "decimal", "repeating decimal", "fraction", "mixed number" (1 1/2) and
    "scientific". A number may have a minus sign.
    """
    if is_negated(formula):
        term = formula.children[1]
        return "" if tokens(term)[0] == "-" else number_style(term)  # -(-5) is not a single number
    if kind(formula) == "NUMBER":
        return "integer" if is_integer(formula) else "decimal"
    match factors(formula):
        case [(1, dividend), (-1, divisor)] if is_integer(divisor):
            if is_integer(drop_minus_sign(dividend)):
                return "fraction"
        case [(1, number), (1, power)] if kind(power) == "power" and power.children[0] == "10":
            is_integer_power = number_style(power.children[1]) == "integer"  # as in 4*10^5
            return "scientific" if kind(number) == "NUMBER" and is_integer_power else ""
    styles = {"REPEATING_DECIMAL": "repeating decimal", "MIXED_NUMBER": "mixed number"}
    return styles.get(kind(formula), "")


def has_sum(formula: Formula) -> bool:
    """Return whether a formula is a sum, a power of a sum, or a product with one of these.

    A single term with a minus sign does not count as a sum.
    """
    if kind(formula) == "sum":
        return not is_negated(formula) or has_sum(formula.children[1])
    if kind(formula) == "power":
        return has_sum(formula.children[0])
    return kind(formula) in PRODUCT_KINDS and any(map(has_sum, operands(formula)))


# --- What is left unevaluated ---

# A product that could be one quotient, but has nothing else to multiply or cancel.
FACTORED_QUOTIENT = "quotient times a factor"


def find_unevaluated(formula: Formula) -> set[str]:
    """Return names for the operations that a formula leaves unevaluated, such as "sum of numbers".

    Names that end in "of numbers" also stand for operations on letters that always have to be
    carried out, such as 2x + 3x, x*x and x^1.

    The set also has the formula's letters and functions, "root" if it has a root, and "denominator"
    if it divides by a letter or a sum. An answer may leave unevaluated only what the known answer
    leaves unevaluated too.
    """
    if number_style(formula):
        return set(find_unevaluated_in_number(drop_minus_sign(formula)))
    if kind(formula) == "NAME":
        return {str(formula)}
    return set(find_unevaluated_at_top(formula)).union(*map(find_unevaluated, operands(formula)))


def has_arithmetic(formula: Formula) -> bool:
    """Return whether a formula leaves an operation "of numbers" unevaluated: `find_unevaluated`."""
    return any(name.endswith("of numbers") for name in find_unevaluated(formula))


def find_unevaluated_in_number(number: Formula) -> Iterator[str]:
    """Yield what a single number leaves unevaluated, such as 6/3, 1 5/4 or 42 times 10^5."""
    style = number_style(number)
    if style == "fraction" and value(number).is_Integer:
        yield "product of numbers"
    if style == "mixed number" and not 0 < split_mixed_number(number)[1] < 1:
        yield "sum of numbers"
    if style == "scientific":
        yield "scientific notation"
        if not 1 <= value(number.children[0]) < 10:
            yield "product of numbers"


def find_unevaluated_at_top(formula: Formula) -> Iterator[str]:
    """Yield what the outermost operation leaves unevaluated, but not what its operands do."""
    operation = "product" if kind(formula) in PRODUCT_KINDS else kind(formula)
    if value(formula).is_Rational:
        yield f"{operation} of numbers"
    match operation:
        case "sum":
            yield from find_unevaluated_in_sum(terms(formula))
            if has_two_signs(formula):
                yield "two signs in a row"
        case "product":
            yield from find_unevaluated_in_product(formula)
        case "power":
            yield from find_unevaluated_in_power(*formula.children)
        case "root":
            yield from find_unevaluated_in_root(formula.children[-1])
        case "absolute_value":
            # |-x| could be |x|.
            yield "two signs in a row" if is_negated(formula.children[0]) else operation
        case "function_call":
            # exp(x) counts like e^x, in which "e" is found as a letter.
            yield {"\\exp": "e"}.get(formula.children[0], str(formula.children[0]))
            if has_sign_in_argument(formula):
                yield "sign in an argument"
        case _:
            yield operation


def find_unevaluated_in_sum(signed_terms: list[tuple[str, Formula]]) -> Iterator[str]:
    """Yield what the terms of a sum leave unevaluated: like terms, zeros, constants."""
    # Each term as a number times a symbolic part: like terms have the same symbolic part. 2^{2n+1}
    # is 2 times 4^n.
    values = (split_exponentials(value(term)) for _, term in signed_terms)
    coefficients, symbolic_parts = zip(
        *(sympy.expand_power_exp(term_value).as_coeff_Mul() for term_value in values), strict=True
    )
    if len(set(symbolic_parts)) < len(symbolic_parts) or 0 in coefficients:
        yield "sum of numbers"  # 2x + 3x, x + 0
    # 1 + pi: without letters, the sum is a number that could be computed.
    if len(signed_terms) > 1 and not any(part.free_symbols for part in symbolic_parts):
        yield "sum of constants"


def find_unevaluated_in_power(base: Formula, exponent: Formula) -> Iterator[str]:
    """Yield what a power leaves unevaluated: powers of numbers, of powers, and of products.

    Also yields "exponential", "root" or "denominator" for a power that is one.
    """
    exponent_value, base_value = value(exponent), value(base)
    # e and pi have no free symbols, but are letters here. i is not: its powers can be computed.
    is_letter = kind(base) == "NAME" and base != "i"
    if not exponent_value.is_Rational:
        yield "exponential"
    elif not exponent_value.is_Integer:
        yield from find_unevaluated_in_root(base)
    elif exponent_value in (0, 1) or base_value == 1:  # x^0, x^1, 1^2
        yield "trivial power of numbers"
    elif (  # (x^2)^3, 2^3
        kind(base) in ("power", "root") or not (base_value.free_symbols or is_letter)
    ):
        yield "power of numbers"
    # (-x)^2, (xy)^2, (2x + 2)^2, but not (1/2)^n
    if (
        is_negated(base)
        or (kind(base) in PRODUCT_KINDS and not (number_style(base) and is_simplest(base)))
        or (has_sum(base) and numeric_content(base) != 1)
    ):
        yield "power of a product"
    if exponent_value.is_negative and base_value.free_symbols:
        yield "denominator"


def find_unevaluated_in_root(radicand: Formula) -> Iterator[str]:
    """Yield what a root leaves unevaluated, written with a root sign or an exponent such as 1/2."""
    yield "root"
    if kind(radicand) == "power" or has_sum(radicand):
        yield "root of a power or sum"


def find_unevaluated_in_product(formula: Formula) -> Iterator[str]:
    """Yield what a product or fraction leaves unevaluated: factors to multiply or cancel."""
    dividends, divisors, dividend_number, divisor_number = split_quotient(formula)
    # A single 0 or 1 above the line is allowed if something is below the line, as in 1/x. Below the
    # line it is not allowed, as in x/1; so `other_side` of the divisors is empty.
    for same_side, other_side in ((dividends, divisors), (divisors, [])):
        bases = [get_power_base(factor) for factor in same_side if not number_style(factor)]
        numbers = [
            factor for factor in same_side if number_style(factor) or is_power_of_numbers(factor)
        ]
        if len(numbers) > 1 or len(bases) > len(set(bases)):  # 2*3, x*x
            yield "product of numbers"
        trivial = [
            factor for factor in same_side if number_style(factor) and abs(value(factor)) in (0, 1)
        ]
        if trivial and (len(same_side) > 1 or not other_side):  # 1x, 0x, x/1, but not 1/x
            yield "product of numbers"
    if set(map(get_power_base, dividends)) & set(map(get_power_base, divisors)):  # x/x, x^2/x
        yield "product of numbers"
    # A number divided by a number, if one of them is a fraction (its denominator `q` is above 1) or
    # the division has no remainder.
    if divisor_number != 1 and (
        dividend_number.q > 1 or divisor_number.q > 1 or dividend_number % divisor_number == 0
    ):
        yield "product of numbers"
    # Two roots that could be one: both are dividends or both divisors, or a dividend and a divisor
    # have a common factor.
    surds = [
        [value(factor) for factor in side if is_surd(factor)] for side in (dividends, divisors)
    ]
    if max(map(len, surds)) > 1 or (
        all(surds) and sympy.gcd(*(prod(side) ** 2 for side in surds)) != 1
    ):
        yield "product of roots"
    all_factors = [factor for _, factor in factors(formula)]
    bases = [get_power_base(factor) for factor in all_factors if is_exponential(factor)]
    if len({get_primitive_base(value(base)) for base in bases}) < len(bases):
        yield "product of numbers"  # 2^n 4^n and 2^n/4^n, which could be one power
    if len(bases) > 1 and any(kind(base) in PRODUCT_KINDS for base in bases):
        yield "power of a product"  # 6^n (2/3)^n
    # Without letters, a product with a sum such as sqrt(3)(1 + sqrt(2)) could be multiplied out.
    not_numbers = [factor for factor in all_factors if not number_style(factor)]
    if not value(formula).free_symbols and len(not_numbers) > 1 and any(map(has_sum, not_numbers)):
        yield "product of sums"
    # (x/y)/z, x/y/z, (x/y)(z/w) and 60(x/180), but (x/y)z is only a quotient times a factor.
    quotients = [part for part in operands(formula) if is_quotient(part)]
    slashes = [*map(kind, formula.children)].count("OVER")
    divides = kind(formula) == "fraction" or slashes
    has_common_factor = gcd(dividend_number.p, divisor_number.p) != 1
    if len(quotients) + slashes > 1 or (quotients and (divides or has_common_factor)):
        yield "quotient of quotients"
    elif quotients:
        yield FACTORED_QUOTIENT
    if any(map(is_negated, all_factors[1:])):
        yield "two signs in a row"
    if any(value(factor).free_symbols or has_sum(factor) or factor == "i" for factor in divisors):
        yield "denominator"


def split_quotient(formula: Formula) -> tuple[list[Formula], list[Formula], Rational, Rational]:
    """Split a product or fraction at its fraction line.

    Returns:
        The factors above the line (dividends), those below it (divisors), and the number in each of
        the two: the product of the `numeric_content` of its factors.
    """
    dividends, divisors = (
        [factor for exponent, factor in factors(formula) if exponent == sign] for sign in (1, -1)
    )
    dividend_number, divisor_number = (
        prod(map(numeric_content, side), start=sympy.Integer(1)) for side in (dividends, divisors)
    )
    return dividends, divisors, dividend_number, divisor_number


def is_surd(factor: Formula) -> bool:
    """Return whether a factor is a root, or a power with a fraction for its exponent."""
    is_power = kind(factor) == "power" and value(factor.children[1]).is_Rational
    return kind(factor) == "root" or (is_power and not value(factor.children[1]).is_Integer)


def is_quotient(formula: Formula) -> bool:
    """Return whether a formula is a quotient other than a number such as 1/2."""
    return not number_style(formula) and any(exponent < 0 for exponent, _ in factors(formula))


def is_power_of_numbers(formula: Formula) -> bool:
    """Return whether a formula is a power with a number as base and as exponent."""
    return kind(formula) == "power" and all(map(number_style, formula.children))


def count_numbers(formula: Formula) -> Counter:
    """Count the numbers and powers of numbers in a formula, other than 1."""
    if kind(formula) == "NUMBER" or is_power_of_numbers(formula):
        return Counter({value(formula): 1} if value(formula) != 1 else {})
    return sum(map(count_numbers, operands(formula)), Counter())


def numeric_content(formula: Formula) -> Rational:
    """Return the largest positive number that divides all terms of a formula."""
    number = value(formula)
    return abs(number.as_content_primitive()[0] if number.is_Add else number.as_coeff_Mul()[0])


# --- Shape, and simplest form ---

OTHER_SHAPE = "neither expanded nor factored"
BRACKETED_SUM = "sum in brackets after a sign"


def shape(formula: Formula) -> str:
    """Return the shape of a formula.

    For a number it is the style (`number_style`). For other formulas:

    - "expanded": a product without sums in it, or a sum of such products;
    - "factored": a product with a factor that is an expanded sum, or a power of an expanded sum;
    - "quotient": an expanded or factored formula divided by a letter or a sum;
    - "sum of quotients": a sum with such a quotient;
    - BRACKETED_SUM: a sum with such a term as -(x+1), whose sign is not multiplied out;
    - OTHER_SHAPE: anything else, such as x + 2(x+1).
    """
    written_formula, formula = formula, drop_minus_sign(formula)
    if style := number_style(formula):
        return style
    if kind(formula) == "sum":
        parts = [term for _, term in terms(formula)]
        if any(map(has_sum, parts)):
            return OTHER_SHAPE
        if any(len(terms(part)) > 1 for part in operands(written_formula)):
            return BRACKETED_SUM
        has_quotients = any("denominator" in find_unevaluated(part) for part in parts)
        return "sum of quotients" if has_quotients else "expanded"
    parts = [(exponent, get_power_base(part)) for exponent, part in factors(formula)]
    if any(has_sum(part) and shape(part) not in ("expanded", BRACKETED_SUM) for _, part in parts):
        return OTHER_SHAPE
    if "denominator" in find_unevaluated(formula):
        return "quotient"
    sums = [part for _, part in parts if has_sum(part)]
    # A sum that is the only factor above the line, as in (x+1)/2, is not factored.
    is_one_sum = len(sums) == 1 == len([part for exponent, part in parts if exponent > 0])
    return "factored" if sums and (kind(formula) == "power" or not is_one_sum) else "expanded"


def get_power_base(formula: Formula) -> Formula:
    """Return the base of a power; a formula that is no power is returned unchanged."""
    return formula.children[0] if kind(formula) == "power" else formula


@functools.lru_cache(maxsize=4096)
def is_simplest(formula: Formula) -> bool:
    """Return whether fractions are reduced, roots are simplified, and factors are irreducible."""
    formula = drop_minus_sign(formula)
    if kind(formula) == "MIXED_NUMBER":
        # `q` is the denominator after sympy has reduced the fraction.
        return split_mixed_number(formula)[1].q == int(re.findall(r"\d+", formula)[-1])
    if isinstance(formula, Token):
        return True
    dividends, divisors, dividend_number, divisor_number = split_quotient(formula)
    # A number that could be cancelled, or a root in the denominator.
    if gcd(dividend_number.p, dividend_number.q * divisor_number.p) != 1 or any(
        "root" in find_unevaluated(factor) for factor in divisors
    ):
        return False
    # A negative exponent: x^{-1} is simpler as 1/x.
    if kind(formula) == "power" and value(formula.children[1]).is_negative:
        return False
    if is_surd(formula) and not is_simplified_root(formula):
        return False
    # Letters that could be cancelled.
    if (
        shape(formula) == "quotient"
        and sympy.gcd(*(prod(map(value, side)) for side in (dividends, divisors))).free_symbols
    ):
        return False
    if shape(formula) == "factored" and not all(
        is_irreducible(get_power_base(factor)) for factor in dividends
    ):
        return False
    return all(map(is_simplest, operands(formula)))


def is_simplified_root(surd: Formula) -> bool:
    """Return whether no factor can be taken out of a root, and the root's index is the smallest."""
    # sympy simplifies a root: it takes out `number`, and writes the rest with the smallest index,
    # which is the denominator of the exponent.
    number, rest = denest_roots(value(surd)).as_coeff_Mul()
    if kind(surd) == "power":
        index = value(surd.children[1]).q
    else:
        index = value(surd.children[0]) if len(surd.children) == 2 else 2
    exponent = rest.as_base_exp()[1]
    return number == 1 and (not exponent.is_Rational or exponent.q == index)


def is_irreducible(factor: Formula) -> bool:
    """Return whether a factor is not a sum, or is a sum that is irreducible over the rationals."""
    if not has_sum(factor):
        return True
    try:
        irreducible_factors = factor_polynomial(value(factor))
    except sympy.PolynomialError:  # the sum has quotients in it
        return True
    multiplicities = [multiplicity for _, multiplicity in irreducible_factors]
    return numeric_content(factor) == 1 and multiplicities == [1]
