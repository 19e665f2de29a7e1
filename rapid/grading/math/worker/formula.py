"""Formulas: parses them to trees with `grammar.lark`, and computes exact values with sympy.

The tree has what is written: 34+57 is a sum of two numbers. The value is a rational number, or an
expression of names, roots, powers and functions. Nothing is rounded.
"""

import functools
import re
from pathlib import Path

import sympy
from lark import Lark, Token, Tree
from lark.exceptions import LarkError
from latex import Unreadable
from sympy import Expr, Rational

Formula = Tree | Token
# Kinds of formulas that are evaluated as products. In f(x), which is "called", these are f times x.
PRODUCTS = ("product", "fraction", "called")
# The sign of a term of a sum within a sum, by the outer and the inner sign: - and - give +.
COMBINED_SIGNS = {("+", "+"): "+", ("+", "-"): "-", ("-", "+"): "-", ("-", "-"): "+"}
MAX_BITS = 100_000  # maximum size of a power, and of an exponent; answers are far smaller
SYMPY_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "log"}
CONSTANTS = {"e": sympy.E, "i": sympy.I, "\\pi": sympy.pi}
PARSER = Lark(Path(__file__).with_name("grammar.lark").read_text(), parser="lalr")


@functools.lru_cache(maxsize=4096)
def parse_formula(text: str) -> Formula:
    """Parse LaTeX from `clean_latex`. Raise Unreadable if the grammar cannot parse it."""
    try:
        return PARSER.parse(text)
    except LarkError as error:
        raise Unreadable(text) from error


def kind(formula: Formula) -> str:
    """Return the grammar's name for a formula: the rule of a tree, the terminal of a token."""
    return str(formula.type if isinstance(formula, Token) else formula.data)


def terms(formula: Formula) -> list[tuple[str, Formula]]:
    """Return the terms of a sum, with their signs. Any other formula is one term."""
    if kind(formula) != "sum":
        return [("+", formula)]
    parts = formula.children
    signed = parts if kind(parts[0]) == "SIGN" else [Token("SIGN", "+"), *parts]
    flat = []
    for sign, part in zip(map(str, signed[::2]), signed[1::2], strict=True):
        # -(-x) stays one term, so that `forms.find_unevaluated_in_sum` can find two signs in a row.
        inner = terms(part) if sign == "+" or len(terms(part)) > 1 else [("+", part)]
        flat += [(COMBINED_SIGNS.get((sign, inner_sign), sign), term) for inner_sign, term in inner]
    return flat


def factors(formula: Formula, keeps_numbers: bool = False) -> list[tuple[int, Formula]]:
    """Return the factors of a product or fraction, each with 1, or with -1 for a divisor.

    Args:
        keeps_numbers: whether a fraction of integers such as 1/2 is one factor.
    """
    rule = kind(formula)
    if rule not in PRODUCTS or (keeps_numbers and is_fraction(formula)):
        return [(1, formula)]
    parts, side = [], 1
    for index, part in enumerate(formula.children):
        if kind(part) in ("TIMES", "OVER"):
            side = -1 if kind(part) == "OVER" else 1
            continue
        side = -1 if rule == "fraction" and index else side
        parts += [(side * inner, factor) for inner, factor in factors(part, keeps_numbers=True)]
        side = 1
    return parts


def split_mixed_number(number: Token) -> tuple[Expr, Expr]:
    """Return the integer and the fraction in a mixed number such as 1\\frac{1}{2}."""
    integer, above, below = map(int, re.findall(r"\d+", number))
    return sympy.Integer(integer), Rational(above, below)


def is_fraction(formula: Formula) -> bool:
    """Return whether a formula is a fraction of two integers without signs."""
    return kind(formula) == "fraction" and all(map(is_integer, formula.children))


def is_integer(formula: Formula) -> bool:
    """Return whether a formula is an integer without a sign."""
    return kind(formula) == "NUMBER" and formula.isdecimal()


def operands(formula: Formula) -> list[Formula]:
    """Return the parts of a formula that are formulas, without signs and separators."""
    parts = [] if isinstance(formula, Token) else formula.children
    return [
        part
        for part in parts
        if kind(part) not in ("SIGN", "TIMES", "OVER", "FUNCTION", "RELATION", "SEPARATOR")
    ]


def tokens(formula: Formula) -> list[Token]:
    """Return the tokens of a formula: its names, numbers and signs."""
    return list(formula.scan_values(lambda _: True)) if isinstance(formula, Tree) else [formula]


@functools.lru_cache(maxsize=4096)
def value(formula: Formula) -> Expr:
    """Return the exact value of a formula. Raise Unreadable if it has none, as 1/0."""
    result = _value(formula)
    if result.has(sympy.zoo, sympy.nan, sympy.oo):
        raise Unreadable("the formula has no value")
    return result


def _value(formula: Formula) -> Expr:
    if isinstance(formula, Token):
        return _value_of_token(formula)
    rule, parts = kind(formula), formula.children
    if rule == "sum":
        signs = {"+": 1, "-": -1}
        if any(sign not in signs for sign, _ in terms(formula)):
            raise Unreadable("a sum with \\pm has two values")
        return sympy.Add(*(signs[sign] * value(term) for sign, term in terms(formula)))
    if rule in PRODUCTS:
        return sympy.Mul(*(value(factor) ** sign for sign, factor in factors(formula)))
    if rule == "applied":
        name, _, base = parts[0][1:].partition("_")
        if len(parts) == 3 and value(parts[1]).is_negative:
            raise Unreadable(
                f"{parts[0]} to a negative power could be an inverse function or a quotient"
            )
        function = SYMPY_NAMES.get(name, name)
        # \log_2 has its base in its name; \log without one has the base 10, but sympy's has e.
        bases = (
            [value(parse_formula(base[1:-1]))] if base else [sympy.Integer(10)] * (name == "log")
        )
        result = getattr(sympy, function)(value(parts[-1]), *bases)
        return power(result, value(parts[1])) if len(parts) == 3 else result
    if rule not in OPERATIONS:
        raise Unreadable(f"a formula of the kind {rule} has no value")
    return OPERATIONS[rule](*map(value, parts))


def _value_of_token(token: Token) -> Expr:
    match kind(token):
        case "NUMBER":
            return Rational(token.removesuffix("."))
        case "REPEATING":
            # 0.1\overline{6} is (16 - 1) / 90. Here `fixed` is 1, and the repeated `digits` are 6.
            integer, fixed, digits = re.fullmatch(r"(\d*)\.(\d*)\D+(\d+)}", token).groups()
            numerator = int(integer + fixed + digits) - int(integer + fixed or 0)
            return Rational(numerator, (10 ** len(digits) - 1) * 10 ** len(fixed))
        case "MIXED":
            return sympy.Add(*split_mixed_number(token))
        case "NAME":
            return CONSTANTS.get(token) or sympy.Symbol(str(token), real=True)
    raise Unreadable(f"{token} has no value")


def power(base: Expr, exponent: Expr) -> Expr:
    """Return a power. Raise Unreadable if it would be too large to compute."""
    if exponent.is_number and exponent.is_real and abs(exponent) > MAX_BITS:
        raise Unreadable(f"an exponent above {MAX_BITS} is not computed")
    bits = max(abs(base.p), base.q).bit_length() if base.is_Rational else 0
    if bits > 1 and exponent.is_Rational and bits * abs(exponent) > MAX_BITS:
        raise Unreadable(f"a power of more than {MAX_BITS} bits is not computed")
    return base**exponent


def root(*parts: Expr) -> Expr:
    """Return the square root of `(radicand,)`, or the root with an index of `(index, radicand)`.

    If a negative number has a real root, it is returned.
    """
    index, radicand = parts if len(parts) == 2 else (sympy.Integer(2), parts[0])
    if radicand.is_negative and index.is_odd:
        return -power(-radicand, 1 / index)
    return power(radicand, 1 / index)


def factorial(number: Expr) -> Expr:
    """Return a factorial. Raise Unreadable if it would be too large to compute."""
    if number.is_Integer and number > 5000:
        raise Unreadable("a factorial above 5000! is not computed")
    return sympy.factorial(number)


def binomial(n: Expr, k: Expr) -> Expr:
    """Return n choose k. Raise Unreadable if it would be too large to compute."""
    if any(number.is_number and abs(number) > 5000 for number in (n, k)):
        raise Unreadable("a binomial of a number above 5000 is not computed")
    return sympy.binomial(n, k)


OPERATIONS = {
    "power": power, "root": root, "factorial": factorial, "binomial": binomial,
    "absolute": sympy.Abs, "floor": sympy.floor, "ceiling": sympy.ceiling,
    "degrees": lambda number: number * sympy.pi / 180,
}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def is_equal(first: Formula, second: Formula) -> bool:
    """Return whether two formulas have the same value: whether their difference expands to 0."""
    difference = value(first) - value(second)
    if difference.is_Rational:
        return difference == 0
    # sqrtdenest rewrites sqrt(3 + 2 sqrt(2)) as 1 + sqrt(2).
    for simplify in (lambda x: x, sympy.sqrtdenest):
        numerator, _ = sympy.fraction(sympy.together(simplify(difference)))
        if sympy.expand(numerator) == 0:
            return True
    return False
