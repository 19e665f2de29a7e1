"""Finds out whether an answer only copies or combines the formulas of a question.

An answer with the structure of a formula of the question is a copy. Two formulas have the same
structure if they differ only in the order of terms and factors, in brackets after a plus sign, and
in the factor that has a product's minus sign.
"""

import functools
from collections import Counter

from forms import find_unevaluated, get_power_base, has_sum, is_simplest, shape
from formula import PRODUCT_KINDS, Formula, factors, is_equal, kind, tokens, value
from lark import Token
from question import has_value, list_expressions, read_formulas
from signs import is_negated

SIGN_TERMINALS = ("SIGN", "TIMES", "OVER", "SEPARATOR", "CONJUNCTION")


def is_stated(formula: Formula, expressions: list[Formula]) -> bool:
    """Return whether one of a question's expressions has the structure of a formula."""
    return describe_structure(formula) in map(describe_structure, expressions)


@functools.lru_cache(maxsize=4096)
def describe_structure(formula: Formula) -> tuple[int, tuple]:
    """Return the number of minus signs before a formula's factors, and the rest of its structure.

    The structure of a sum is the structures of its terms, each with its sign: 5+(-x) is not 5-x.
    """
    if is_negated(formula):
        signs, rest = describe_structure(formula.children[1])
        return signs + 1, rest
    if kind(formula) in PRODUCT_KINDS:
        parts = [(exponent, describe_structure(part)) for exponent, part in factors(formula)]
        signs = sum(part[0] for _, part in parts)
        return signs, ("product", *sorted((exponent, part[1]) for exponent, part in parts))
    if kind(formula) == "sum":
        return 0, ("sum", *sorted(describe_terms(formula)))
    if isinstance(formula, Token):
        return 0, (kind(formula), str(formula))
    return 0, (kind(formula), *map(describe_structure, formula.children))


def describe_terms(formula: Formula) -> list[tuple[str, tuple[int, tuple]]]:
    """Return the sign and the structure of each term of a sum, without brackets after a plus."""
    children = formula.children
    children = children if kind(children[0]) == "SIGN" else [Token("SIGN", "+"), *children]
    signed_terms = []
    for sign, term in zip(children[::2], children[1::2], strict=True):
        if sign == "+" and kind(term) == "sum" and not is_negated(term):
            signed_terms += describe_terms(term)
        else:
            signed_terms.append((str(sign), describe_structure(term)))
    return signed_terms


def has_form_of_any(answer: Formula, expressions: list[Formula]) -> bool:
    """Return whether one of a question's expressions has the value and the form of an answer.

    The expression must leave unevaluated only what the answer leaves unevaluated too.
    """
    unevaluated = find_unevaluated(answer)
    return any(
        find_unevaluated(part) <= unevaluated
        and shape(part) == shape(answer)
        and is_equal(part, answer)
        and is_simplest(part) == is_simplest(answer)
        for part in expressions
    )


def combines_formulas(answer: Formula, question: str, functions: frozenset[str]) -> bool:
    """Return whether an answer is a product or quotient of sums that the question contains.

    An example is (x+2)(x+3) for the product of $x+2$ and $x+3$, or (x+2)^2 for a square. Factors
    that are no sums must be formulas of the question, as x in x(x+2) for $x$ times $x+2$.

    Args:
        functions: the letters of names that are functions before brackets.
    """
    all_factors = [factor for _, factor in factors(answer)]
    sums = [factor for factor in all_factors if has_sum(factor)]
    if not sums or (len(all_factors) < 2 and kind(sums[0]) != "power"):
        return False
    expressions = list_expressions(question, functions)
    question_sums = {value(part) for part in expressions if has_sum(part)}
    formulas = {value(part) for part in read_formulas(question, functions) if has_value(part)}
    return all(
        value(get_power_base(factor)) in question_sums
        if has_sum(factor)
        else value(factor) in formulas
        for factor in all_factors
    )


def count_symbols(formula: Formula) -> Counter:
    """Count the letters, numbers and commands in a formula: all tokens but signs."""
    return Counter(token for token in tokens(formula) if kind(token) not in SIGN_TERMINALS)
