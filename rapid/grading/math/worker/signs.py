"""The signs of formulas: minus signs at the start of terms, and signs that meet each other.

`grammar.lark` describes the kinds of trees. A term with a sign, such as -x, is a sum.
"""

from itertools import pairwise

from formula import Formula, kind, operands
from lark import Tree
from latex import TRIGONOMETRIC_FUNCTIONS

ODD_AND_EVEN_FUNCTIONS = {
    f"\\{name}" for name in (*TRIGONOMETRIC_FUNCTIONS.split("|"), "arcsin", "arctan")
}


def is_negated(formula: Formula) -> bool:
    """Return whether a formula is a single term with a minus sign, such as -x."""
    return kind(formula) == "sum" and len(formula.children) == 2 and formula.children[0] == "-"


def drop_minus_sign(formula: Formula) -> Formula:
    """Return a formula without its minus sign."""
    return formula.children[1] if is_negated(formula) else formula


def has_two_signs(formula: Tree) -> bool:
    """Return whether a term of a sum has a sign that meets the sign before the term.

    Examples are 3-(-2)x, 5+(-x) and -\\frac{-x}{2}. A fraction after a plus sign may have
    one: \\frac12+\\frac{-x}{2}.
    """
    return any(
        has_leading_sign(term) if sign == "-" else starts_with_sign(term)
        for sign, term in pairwise(formula.children)
        if kind(sign) == "SIGN"
    )


def starts_with_sign(term: Formula) -> bool:
    """Return whether the first character of a term, before which brackets may be, is a minus."""
    return is_negated(term) or (kind(term) == "product" and starts_with_sign(term.children[0]))


def has_leading_sign(term: Formula) -> bool:
    """Return whether a term has a minus sign that could stand before the term.

    It stands before the first factor, or before every term of the dividend.
    """
    if kind(term) not in ("product", "fraction"):
        return is_negated(term)
    first = term.children[0]
    signs = first.children[::2] if kind(term) == "fraction" and kind(first) == "sum" else []
    return has_leading_sign(first) or (len(signs) > 0 and {*signs} == {"-"})


def has_sign_in_argument(call: Tree) -> bool:
    """Return whether a sine or another odd or even function has an argument with a minus sign."""
    return call.children[0] in ODD_AND_EVEN_FUNCTIONS and has_leading_sign(operands(call)[-1])
