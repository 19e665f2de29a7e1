"""Converts inequalities to intervals, equations to values by name, and \\pm to two values.

A chain has sides with relations between them: x = 5, 2 <= x < 5. grammar.lark describes it and the
other kinds of formulas.
"""

import re
from collections.abc import Iterable
from itertools import pairwise

import sympy
from forms import has_arithmetic, number_style
from formula import MINUS_ONE, Formula, is_tuple_of_names, kind, operands, tokens, value
from lark import Token, Tree
from latex import Unreadable
from question import has_value, read_formulas
from sympy import Expr
from zeros import MAX_TERMS, measure_expansion

INFINITY = Token("CONSTANT", "\\infty")
MINUS_INFINITY = Tree("sum", [Token("SIGN", "-"), INFINITY])
# Kinds of intervals. The index is 2 if the left end is included, plus 1 if the right end is.
INTERVAL_KINDS = ("open_interval", "left_open_interval", "right_open_interval", "closed_interval")
# Kinds of formulas that have elements. The order of the elements matters only in ORDERED_KINDS.
ORDERED_KINDS = {"tuple", "matrix", "row", *INTERVAL_KINDS}
COLLECTION_KINDS = ORDERED_KINDS | {"list", "set", "union"}


def normalize(formula: Formula) -> Formula:
    """Return an inequality as an interval, and a formula with \\pm as a list of two formulas.

    \\reals is an interval too. Elements of lists and sets are converted as well. Other formulas are
    returned unchanged.
    """
    if formula == "\\reals":
        return Tree("open_interval", [MINUS_INFINITY, INFINITY])
    if points := list_excluded_points(formula):
        bounds = [MINUS_INFINITY, *points, INFINITY]
        return Tree("union", [Tree("open_interval", [*ends]) for ends in pairwise(bounds)])
    if kind(formula) == "union":
        return Tree("union", [*map(read_interval, formula.children)])
    ends = operands(formula) if kind(formula) == "tuple" else []
    if len(ends) == 2 and any(map(sign_of_infinity, ends)):
        return Tree("open_interval", formula.children)
    if {"tuple", "chain"} <= {*map(kind, operands(formula))}:
        return formula  # (-\infty, 1), x > 2 mixes notations
    if bounds := intersect_inequalities(formula):
        return bounds
    if kind(formula) in ("list", "set"):
        elements = []
        # In x = \pm 1, y = \mp 2 the signs belong together.
        if any("\\mp" in tokens(part) and "\\pm" not in tokens(part) for part in operands(formula)):
            raise Unreadable("a \\mp that may belong to the \\pm of another element")
        for part in map(normalize, operands(formula)):  # an element with \pm becomes two elements
            elements += operands(part) if kind(part) == "list" else [part]
        separators = [
            part for part in formula.children if kind(part) in ("SEPARATOR", "CONJUNCTION")
        ]
        return Tree(formula.data, [*elements, *separators])
    signs = [token for token in tokens(formula) if token in ("\\pm", "\\mp")]
    # (\pm 1, \pm 2) could be two tuples or four, but in x = \pm\sqrt4 = \pm 2 the signs belong
    # together.
    sides = operands(formula) if kind(formula) == "chain" else [formula]
    is_ambiguous = any(tokens(side).count("\\pm") > 1 for side in sides)
    if signs and kind(formula) != "union" and not (is_ambiguous and kind(formula) in ORDERED_KINDS):
        if is_ambiguous:
            raise Unreadable("more than one \\pm")
        orders = (("+", "-"), ("-", "+"))
        return normalize(Tree("list", [replace_plus_minus(formula, *order) for order in orders]))
    return to_interval(formula) if kind(formula) == "chain" else formula


def intersect_inequalities(formula: Formula) -> Formula | None:
    """Return the interval for x > 1 and x < 2, and None for any other formula.

    If a comma stands between them, they hold together too, because every x has x > 1 or x < 2. But
    one of x < 1, x > 2 may hold.
    """
    chains = operands(formula)
    if (
        kind(formula) != "list"
        or [*map(kind, chains)] != ["chain", "chain"]
        or has_separator(formula, "or")
        or len({side for chain in chains for side in operands(chain) if is_name(side)}) != 1
    ):
        return None
    intervals = [to_interval(chain) for chain in chains]
    if not {*map(kind, intervals)} <= {*INTERVAL_KINDS}:
        return None
    intervals.sort(key=lambda interval: interval.children[0] == MINUS_INFINITY)
    (left, right_infinity), (left_infinity, right) = map(operands, intervals)
    if (right_infinity, left_infinity) != (INFINITY, MINUS_INFINITY) or sign_of_infinity(left):
        return None
    if not (value(right) - value(left)).is_positive:
        return None
    is_left_included, is_right_included = (
        INTERVAL_KINDS.index(kind(interval)) > 0 for interval in intervals
    )
    return Tree(INTERVAL_KINDS[2 * is_left_included + is_right_included], [left, right])


def read_interval(formula: Formula) -> Formula:
    """Return a pair such as (1, 2) as an open interval, and any other formula unchanged."""
    is_pair = kind(formula) == "tuple" and len(operands(formula)) == 2
    return Tree("open_interval", formula.children) if is_pair else formula


def replace_plus_minus(formula: Formula, plus: str, minus: str) -> Formula:
    """Return a formula with the sign `plus` in place of \\pm, and `minus` in place of \\mp."""
    if isinstance(formula, Token):
        sign = {"\\pm": plus, "\\mp": minus}.get(formula)
        return Token("SIGN", sign) if sign else formula
    parts = [replace_plus_minus(part, plus, minus) for part in formula.children]
    if kind(formula) == "sum" and parts[0] == "+":
        return parts[1] if len(parts) == 2 else Tree("sum", parts[1:])
    return Tree(formula.data, parts)


def to_interval(chain: Tree) -> Formula:
    """Return the values that a chain allows for its name; return any other chain unchanged.

    These are an interval for 2 <= x < 5 or x > 2, and the right side for x \\in (1, 2). A set of
    tuples becomes a set of equations, which keep the order of the names.
    """
    sides, relations = operands(chain), [str(part) for part in chain.children[1::2]]
    if relations == ["\\in"]:
        right_side = read_interval(normalize(sides[1]))
        kinds = (kind(right_side), *map(kind, operands(right_side)))
        if is_tuple_of_names(sides[0]) and kinds[0] == "set" and {*kinds[1:]} == {"tuple"}:
            equal = Token("RELATION", "=")
            pairs = [Tree("chain", [sides[0], equal, part]) for part in operands(right_side)]
            return Tree("set", pairs)
        is_set = kind(right_side) in (*INTERVAL_KINDS, "union", "set")
        return right_side if is_set and is_name(sides[0]) else chain
    if not {*relations} <= {"<", "\\leq"} and not {*relations} <= {">", "\\geq"}:
        return chain
    # Put the sides in increasing order, and determine whether each bound is included in the
    # interval. A bound that is missing is infinite.
    if relations[0] in (">", "\\geq"):
        sides, relations = sides[::-1], relations[::-1]
    is_included = [relation in ("\\leq", "\\geq") for relation in relations]
    if len(sides) == 2:
        is_name_first = is_name(sides[0])
        sides = [MINUS_INFINITY, *sides] if is_name_first else [*sides, INFINITY]
        is_included = [False, *is_included] if is_name_first else [*is_included, False]
    if len(sides) != 3 or not is_name(sides[1]) or any(map(has_letters, (sides[0], sides[2]))):
        return chain
    return Tree(INTERVAL_KINDS[2 * is_included[0] + is_included[1]], [sides[0], sides[2]])


def list_excluded_points(formula: Formula) -> list[Formula]:
    """Return 2 and 3, in increasing order, for x \\neq 2, x \\neq 3 or x \\neq 2, 3.

    The list is empty for other formulas, and if several points have no order.
    """
    elements = operands(formula) if kind(formula) == "list" else [formula]
    chains = [part for part in elements if kind(part) == "chain"]
    if elements[0] not in chains or any(chain.children[1::2] != ["\\neq"] for chain in chains):
        return []
    names = {chain.children[0] for chain in chains}
    points = [part.children[2] if part in chains else part for part in elements]
    if len(names) > 1 or not is_name(*names) or not all(map(has_value, points)):
        return []
    if len(points) == 1:
        return points
    has_order = all(value(point).is_number and value(point).is_real for point in points)
    return sorted(points, key=value) if has_order and not has_separator(formula, "or") else []


def has_letters(bound: Formula) -> bool:
    """Return whether a bound of an interval depends on a variable."""
    return not sign_of_infinity(bound) and bool(value(bound).free_symbols)


def find_named_values(formula: Formula) -> dict[Formula, Formula]:
    """Return the values by name in x = 1, y = 2 or in (x, y) = (1, 2); {} for other formulas."""
    if is_equation(formula) and set(map(kind, operands(formula))) == {"tuple"}:
        names, values = map(operands, operands(formula))
        is_named = len(names) == len(values) and set(map(kind, names)) == {"NAME"}
        return dict(zip(names, values, strict=True)) if is_named else {}
    sides = [operands(part) for part in operands(formula) if is_equation(part)]
    by_name = {left: right for left, right in sides if is_name(left)}
    # x = 1 or y = 2 are not values of both.
    is_list = (
        kind(formula) == "list"
        and len(by_name) == len(operands(formula))
        and not has_separator(formula, "or")
    )
    return by_name if is_list else {}


def is_equation(formula: Formula) -> bool:
    """Return whether a formula is an equation with two sides."""
    return kind(formula) == "chain" and formula.children[1::2] == ["="]


def is_rounded(exact: Formula, decimal: Formula) -> bool:
    """Return whether `decimal` is the number `exact` rounded to the decimal places of `decimal`."""
    if (
        number_style(decimal) not in ("integer", "decimal")
        or has_arithmetic(exact)
        or not value(exact).is_number
    ):
        return False
    places = len(tokens(decimal)[-1].partition(".")[2])
    # The difference may be at most half a unit of the last decimal place.
    return bool(abs(value(exact) - value(decimal)) * 2 * 10**places <= 1)


def must_be_rounded(decimal: Formula, exact: Formula) -> bool:
    """Return whether a decimal can stand for the number `exact` only as its rounded value.

    It has at least two decimal places, and `exact` has no last one, like 1/3 = 0.333...
    """
    if number_style(decimal) != "decimal" or not re.search(r"\.\d\d", tokens(decimal)[-1]):
        return False
    number = value(exact)
    return not number.is_Rational or 10 ** number.q.bit_length() % number.q != 0


def is_proportional(first: Expr, second: Expr) -> bool:
    """Return whether the numerators of two expressions differ only by a constant factor.

    The denominators must have the same letters. Numerators whose expansions are too large are never
    proportional.
    """
    (first, first_denominator), (second, second_denominator) = (
        sympy.fraction(sympy.together(expression)) for expression in (first, second)
    )
    if first_denominator.free_symbols != second_denominator.free_symbols:
        return False
    if max(measure_expansion(first)[0], measure_expansion(second)[0]) > MAX_TERMS:
        return False
    first, second = sympy.expand(first), sympy.expand(second)
    first_coefficients = first.as_coefficients_dict()
    second_coefficients = second.as_coefficients_dict()
    # Scale both so that a term that occurs in both has the same coefficient. Compare all terms.
    common = next((term for term in first_coefficients if second_coefficients.get(term)), None)
    if common is None:
        return False
    difference = first * second_coefficients[common] - second * first_coefficients[common]
    return sympy.expand(difference) == 0


def is_name(formula: Formula) -> bool:
    """Return whether a formula names a quantity.

    Examples are x, f(2), f(g(x)), f^{-1}(2), AB, |AB| and \\angle ABC.
    """
    if kind(formula) == "NAME":
        return formula not in ("e", "i", "\\pi")
    if kind(formula) == "absolute_value":
        return kind(formula.children[0]) == "product" and is_name(formula.children[0])
    if kind(formula) in ("name_call", "name_product"):
        _, *arguments = operands(formula)
        return len(arguments) == 1 and (
            kind(arguments[0]) == "NAME"
            or number_style(arguments[0]) == "integer"
            or is_name(arguments[0])
        )
    if kind(formula) != "product" or len(formula.children) != len(operands(formula)):
        return False
    # AB is a product, and so is h^{-1}(2) if h is no function of the question.
    first, *arguments = operands(formula)
    if kind(first) == "power" and first.children[1] == MINUS_ONE:
        return kind(first.children[0]) == "NAME" and len(arguments) == 1
    return all(kind(part) == "NAME" and part.isupper() for part in (first, *arguments))


def sign_of_infinity(formula: Formula) -> str:
    """Return the sign of plus or minus infinity; "" for other formulas."""
    if formula == "\\infty":
        return "+"
    is_signed = kind(formula) == "sum" and formula.children[1:] == ["\\infty"]
    return str(formula.children[0]) if is_signed else ""


def find_variables(formula: Formula) -> set[str]:
    """Return the variables (tokens of the kind NAME) in a formula, and also e, i and \\pi."""
    return {str(token) for token in tokens(formula) if kind(token) == "NAME"}


def list_inequalities(formula: Formula) -> list[Tree]:
    """Return the chains without "=" that a formula is or has as elements."""
    chains = [part for part in (formula, *operands(formula)) if kind(part) == "chain"]
    return [chain for chain in chains if "=" not in chain.children[1::2]]


def has_inequalities_in_name_of_question(answer: Formula, question: str) -> bool:
    """Return whether an answer's inequalities have at most one name, and the question has it too.

    Any name is allowed if the question has no variables or asks for a range.
    """
    names = {
        side for chain in list_inequalities(answer) for side in operands(chain) if is_name(side)
    }
    question_names = set().union(*map(find_variables, read_formulas(question)))
    if len(names) > 1:
        return False
    if "range" in question or not question_names:
        return True
    return all(find_variables(name) & question_names for name in names)


def are_names_of_question(names: Iterable[Formula], gold: Formula, question: str) -> bool:
    """Return whether the question has the names of values, such as x and y in x = 1, y = 2.

    The names may have subscripts that the question has not, as in x_1 = 1, x_2 = 2. The
    coordinates of a tuple may be x, y and z, or h and k, unless the question has a tuple of names.
    Any names are allowed if the question has none.
    """
    formulas = read_formulas(question)
    question_names = set().union(*map(find_variables, formulas))
    has_tuple = any(map(is_tuple_of_names, formulas))
    allowed_names = question_names | (
        set("xyzhk") if kind(gold) == "tuple" and not has_tuple else set()
    )
    return not question_names or all(
        find_variables(name) & allowed_names or str(name).partition("_")[0] in allowed_names
        for name in names
    )


def has_separator(collection: Tree, text: str) -> bool:
    """Return whether a text, such as the word "and", is in a separator between elements."""
    return any(
        kind(part) in ("SEPARATOR", "CONJUNCTION") and text in part for part in collection.children
    )


def repeats_equation(formula: Formula, equation: Tree) -> bool:
    """Return whether a formula is an equation that differs from `equation` only by a factor.

    The factor may have letters: \\frac{h}{3} = \\frac{V}{A} repeats 3V = Ah.
    """
    if not is_equation(formula) or not all(map(has_value, operands(formula) + operands(equation))):
        return False
    numerators = (
        sympy.fraction(sympy.together(subtract_sides(part)))[0] for part in (formula, equation)
    )
    return is_proportional(*numerators)


def subtract_sides(equation: Tree) -> Expr:
    """Return the left side of an equation minus its right side."""
    first, second = map(value, operands(equation))
    return first - second
