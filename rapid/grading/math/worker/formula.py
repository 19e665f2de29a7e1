"""Formulas: parses them to trees with `grammar.lark`, and computes exact values with sympy.

The tree represents what is written: 34+57 is a sum of two numbers. grammar.lark describes the kinds
of trees. The value is a rational number, or an expression of names, roots, powers and functions.
Nothing is rounded.
"""

import functools
import re
import string
from pathlib import Path

import sympy
from lark import Lark, Token, Transformer, Tree
from lark.exceptions import LarkError
from latex import FUNCTIONS, LETTER_COMMANDS, Unreadable
from sympy import Expr, Rational
from zeros import CALL, denest_roots, is_factorable_exponential, is_zero, unify_calls

Formula = Tree | Token
# Kinds of formulas that are evaluated as products.
PRODUCT_KINDS = ("product", "fraction", "name_product")
# Letters of names that are functions before brackets, unless a question says otherwise
# (`expressions.find_functions`). Other names are factors, as in x(x+1).
FUNCTION_NAMES = frozenset("fg")
EVERY_LETTER = frozenset(string.ascii_letters).union(
    f"\\{name}" for name in LETTER_COMMANDS.split("|")
)
# The sign of a term of a sum within a sum, by the outer and the inner sign: - and - give +.
COMBINED_SIGNS = {("+", "+"): "+", ("+", "-"): "-", ("-", "+"): "-", ("-", "-"): "+"}
# Maximum value of an exponent, and number of bits of a power. Those of answers are far smaller.
MAX_EXPONENT = MAX_BITS = 100_000
SYMPY_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "log"}
CONSTANTS = {"e": sympy.E, "i": sympy.I, "\\pi": sympy.pi}
MINUS_ONE = Tree("sum", [Token("SIGN", "-"), Token("NUMBER", "1")])

GRAMMAR = Path(__file__).with_name("grammar.lark").read_text()
GRAMMAR = GRAMMAR.replace("(FUNCTIONS)", f"({FUNCTIONS})").replace("LETTERS", LETTER_COMMANDS)
PARSER = Lark(GRAMMAR, parser="lalr")


class CallReader(Transformer):
    """Decides whether a name before brackets is a function or a factor.

    x(x+1) and x(x+1)^2 are products, and f(x)^2 is the square of f(x).

    Args:
        functions: the letters of names that are functions.
    """

    def __init__(self, functions: frozenset[str]):
        super().__init__()
        self.functions = functions

    def NAME(self, name: Token) -> Formula:
        """Return the formula for a name, which is a power for f^{-1}."""
        base, is_inverse, _ = name.partition("^")
        return Tree("power", [Token("NAME", base.strip()), MINUS_ONE]) if is_inverse else name

    def name_call(self, parts: list[Formula]) -> Tree:
        """Return the formula for a name and arguments in brackets."""
        if self._is_function(parts[0]):
            return Tree("name_call", parts)
        return Tree("name_product" if kind(parts[0]) == "NAME" else "product", parts)

    def call_power(self, parts: list[Formula]) -> Tree:
        """Return the formula for a name, an argument in brackets and an exponent."""
        return self._split_call("power", *parts)

    def call_factorial(self, parts: list[Formula]) -> Tree:
        """Return the formula for a name and an argument in brackets before "!"."""
        return self._split_call("factorial", *parts)

    def _split_call(
        self, operation: str, name: Formula, argument: Formula, *exponent: Formula
    ) -> Tree:
        if self._is_function(name):
            return Tree(operation, [Tree("name_call", [name, argument]), *exponent])
        return Tree("product", [name, Tree(operation, [argument, *exponent])])

    def _is_function(self, name: Formula) -> bool:
        return get_letter(tokens(name)[0]) in self.functions


@functools.lru_cache(maxsize=4096)
def parse_formula(text: str, functions: frozenset[str] = FUNCTION_NAMES) -> Formula:
    """Parse LaTeX from `clean_latex`. Raise Unreadable if the grammar cannot parse it.

    Args:
        functions: the letters of names that are functions before brackets.
    """
    try:
        formula = PARSER.parse(text)
    except LarkError as error:
        raise Unreadable(text) from error
    return CallReader(functions).transform(formula) if isinstance(formula, Tree) else formula


def get_letter(name: str) -> str:
    """Return the letter, or the command for it, in a name such as f_1 or f'."""
    return re.match(r"\\?[a-zA-Z]*", name)[0]


def kind(formula: Formula) -> str:
    """Return the grammar's name for a formula: the rule of a tree, the terminal of a token."""
    return str(formula.type if isinstance(formula, Token) else formula.data)


def terms(formula: Formula) -> list[tuple[str, Formula]]:
    """Return the terms of a sum, with their signs. Any other formula is one term."""
    if kind(formula) != "sum":
        return [("+", formula)]
    children = formula.children
    children = children if kind(children[0]) == "SIGN" else [Token("SIGN", "+"), *children]
    signed_terms = []
    for sign, part in zip(map(str, children[::2]), children[1::2], strict=True):
        # -(-x) stays one term, so that `forms.find_unevaluated_in_sum` can find two signs in a row.
        inner_terms = terms(part) if sign == "+" or len(terms(part)) > 1 else [("+", part)]
        signed_terms += [
            (COMBINED_SIGNS.get((sign, inner_sign), sign), term) for inner_sign, term in inner_terms
        ]
    return signed_terms


def drop_plus_sign(formula: Formula) -> Formula:
    """Return a formula without the plus sign before it: 5 for +5, but +(-5) unchanged."""
    is_signed = kind(formula) == "sum" and len(formula.children) == 2 and formula.children[0] == "+"
    return formula.children[1] if is_signed and kind(formula.children[1]) != "sum" else formula


def factors(formula: Formula, keeps_fractions: bool = False) -> list[tuple[int, Formula]]:
    """Return the factors of a product or fraction, each with its exponent: 1, or -1 for a divisor.

    Args:
        keeps_fractions: whether the formula is one factor if it is a fraction of integers. Such a
            fraction inside the formula is always one factor.
    """
    formula_kind = kind(formula)
    if formula_kind not in PRODUCT_KINDS or (keeps_fractions and is_fraction(formula)):
        return [(1, formula)]
    powers, exponent = [], 1
    for index, part in enumerate(formula.children):
        if kind(part) in ("TIMES", "OVER"):
            exponent = -1 if kind(part) == "OVER" else 1
            continue
        exponent = -1 if formula_kind == "fraction" and index else exponent
        powers += [
            (exponent * inner_exponent, factor)
            for inner_exponent, factor in factors(part, keeps_fractions=True)
        ]
        exponent = 1
    return powers


def split_mixed_number(number: Token) -> tuple[Expr, Expr]:
    """Return the integer and the fraction in a mixed number such as 1\\frac{1}{2}."""
    integer, numerator, denominator = map(int, re.findall(r"\d+", number))
    return sympy.Integer(integer), Rational(numerator, denominator)


def is_fraction(formula: Formula) -> bool:
    """Return whether a formula is a quotient of two integers without signs: \\frac12 or 1/2."""
    has_slash = kind(formula) == "product" and kind(formula.children[1]) == "OVER"
    is_quotient = len(operands(formula)) == 2 and (has_slash or kind(formula) == "fraction")
    return is_quotient and all(map(is_integer, operands(formula)))


def is_tuple_of_names(formula: Formula) -> bool:
    """Return whether a formula is a tuple such as (x, y)."""
    return kind(formula) == "tuple" and {*map(kind, operands(formula))} == {"NAME"}


def is_integer(formula: Formula) -> bool:
    """Return whether a formula is an integer without a sign."""
    return kind(formula) == "NUMBER" and formula.isdecimal()


def operands(formula: Formula) -> list[Formula]:
    """Return the parts of a formula that are formulas, without signs and separators."""
    parts = [] if isinstance(formula, Token) else formula.children
    return [
        part
        for part in parts
        if kind(part)
        not in ("SIGN", "TIMES", "OVER", "FUNCTION", "RELATION", "SEPARATOR", "CONJUNCTION")
    ]


def tokens(formula: Formula) -> list[Token]:
    """Return the tokens of a formula: its names, numbers, functions, signs and so on."""
    return list(formula.scan_values(lambda _: True)) if isinstance(formula, Tree) else [formula]


@functools.lru_cache(maxsize=4096)
def value(formula: Formula) -> Expr:
    """Return the exact value of a formula. Raise Unreadable if it has none, such as 1/0."""
    result = _value(formula)
    if result.has(sympy.zoo, sympy.nan, sympy.oo):
        raise Unreadable("the formula has no value")
    return result


def _value(formula: Formula) -> Expr:
    if isinstance(formula, Token):
        return _value_of_token(formula)
    formula_kind, parts = kind(formula), formula.children
    if formula_kind == "sum":
        signs = {"+": 1, "-": -1}
        if any(sign not in signs for sign, _ in terms(formula)):
            raise Unreadable("a sum with \\pm has two values")
        return sympy.Add(*(signs[sign] * value(term) for sign, term in terms(formula)))
    if formula_kind in PRODUCT_KINDS:
        return sympy.Mul(
            *(
                value(factor) if exponent == 1 else power(value(factor), sympy.Integer(exponent))
                for exponent, factor in factors(formula)
            )
        )
    if formula_kind == "name_call":
        return CALL(*map(value, operands(formula)))
    if formula_kind == "function_call":
        function, *exponents, argument = parts  # \sin x has no exponent, \sin^2 x has one
        name, _, base = function[1:].partition("_")
        if exponents and value(exponents[0]).is_negative:
            raise Unreadable(
                f"{function} to a negative power could be an inverse function or a quotient"
            )
        # \log_2 has its base in its token. \log without a base has the base 10, but sympy's has e.
        bases = (
            [value(parse_formula(base[1:-1]))] if base else [sympy.Integer(10)] * (name == "log")
        )
        result = getattr(sympy, SYMPY_NAMES.get(name, name))(value(argument), *bases)
        return power(result, value(exponents[0])) if exponents else result
    if formula_kind not in OPERATIONS:
        raise Unreadable(f"a formula of the kind {formula_kind} has no value")
    return OPERATIONS[formula_kind](*map(value, parts))


def _value_of_token(token: Token) -> Expr:
    match kind(token):
        case "NUMBER":
            return Rational(token.removesuffix("."))
        case "REPEATING_DECIMAL":
            # 0.1\overline{6} is (16 - 1) / 90. Here `fixed` is 1, and the repeated `digits` are 6.
            integer, fixed, digits = re.fullmatch(r"(\d*)\.(\d*)\D+(\d+)}", token).groups()
            numerator = int(integer + fixed + digits) - int(integer + fixed or 0)
            return Rational(numerator, (10 ** len(digits) - 1) * 10 ** len(fixed))
        case "MIXED_NUMBER":
            return sympy.Add(*split_mixed_number(token))
        case "NAME":
            return CONSTANTS.get(token) or sympy.Symbol(str(token), real=True)
    raise Unreadable(f"{token} has no value")


def power(base: Expr, exponent: Expr) -> Expr:
    """Return a power. Raise Unreadable if it divides by zero or would be too large to compute."""
    # sympy sees only later that (x+1)^2-x^2-2x-1 is zero, when the quotient has been multiplied.
    # A product is zero only if a factor is, and a power only if its base is; expanding (1 + x)^{40}
    # would take long.
    bases = (factor.as_base_exp()[0] for factor in sympy.Mul.make_args(base))
    if exponent.is_negative and any(map(is_zero, bases)):
        raise Unreadable("a division by zero")
    if exponent.is_number and exponent.is_real and abs(exponent) > MAX_EXPONENT:
        raise Unreadable(f"an exponent above {MAX_EXPONENT} is not computed")
    bits = max(abs(base.p), base.q).bit_length() if base.is_Rational else 0
    if bits > 1 and exponent.is_Rational and bits * abs(exponent) > MAX_BITS:
        raise Unreadable(f"a power of more than {MAX_BITS} bits is not computed")
    return base**exponent


def root(*parts: Expr) -> Expr:
    """Return a root. If a negative number has a real root, that root is returned.

    Args:
        parts: `(radicand,)` of a square root, or `(index, radicand)`.
    """
    index, radicand = parts if len(parts) == 2 else (sympy.Integer(2), parts[0])
    if index.is_number and not (index.is_Integer and index >= 2):
        raise Unreadable("the index of a root is an integer above 1")
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
    "absolute_value": sympy.Abs, "floor": sympy.floor, "ceiling": sympy.ceiling,
    "degrees": lambda number: number * sympy.pi / 180,
}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def is_equal(first: Formula, second: Formula) -> bool:
    """Return whether two formulas have the same value: whether their difference expands to 0.

    Raise Unreadable if that cannot be found out.
    """
    difference = unify_calls(value(first) - value(second))
    if is_zero(difference):
        return True
    denested = denest_roots(difference)
    return denested != difference and is_zero(denested)


def is_exponential(formula: Formula) -> bool:
    """Return whether a formula is an exponential whose base can be factored, such as 4^n."""
    return kind(formula) == "power" and is_factorable_exponential(*map(value, formula.children))
