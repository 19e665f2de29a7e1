"""Converts inequalities to intervals, equations to values by name, and \\pm to two values.

"chain" is the grammar's word for sides with relations between them: x = 5, 2 <= x < 5.
"""

import sympy
from forms import has_arithmetic, number_style
from formula import Formula, kind, operands, tokens, value
from lark import Token, Tree
from latex import Unreadable
from question import has_value, read_formulas
from sympy import Expr

INFINITY = Token("CONSTANT", "\\infty")
MINUS_INFINITY = Tree("sum", [Token("SIGN", "-"), INFINITY])
MINUS_ONE = Tree("sum", [Token("SIGN", "-"), Token("NUMBER", "1")])
# Kinds of intervals. The index is 2 if only the left end is closed, 1 if only the right end is, and
# 3 if both ends are.
INTERVALS = ("open", "left_open", "right_open", "closed")
# Kinds of formulas that have parts: only in those of SORTED the order of the parts matters. "items"
# is a list without brackets.
UNORDERED = {"items", "set", "union"}
SORTED = {"tuple", "matrix", "row", *INTERVALS}
SEQUENCES = UNORDERED | SORTED


def normalize(formula: Formula) -> Formula:
    """Return an inequality as an interval, and a formula with \\pm as a list of two formulas."""
    if formula == "\\reals":
        return Tree("open", [MINUS_INFINITY, INFINITY])
    if kind(formula) in ("items", "set"):
        parts = [normalize(part) for part in operands(formula)]
        parts = [p for part in parts for p in (operands(part) if kind(part) == "items" else [part])]
        words = [part for part in formula.children if kind(part) == "SEPARATOR"]
        return Tree(formula.data, [*parts, *words])
    signs = [token for token in tokens(formula) if token in ("\\pm", "\\mp")]
    if kind(formula) not in SEQUENCES and signs:
        if signs.count("\\pm") > 1:
            raise Unreadable("more than one choice of signs")
        return Tree(
            "items", [normalize(replace_plus_minus(formula, *signs)) for signs in ("+-", "-+")]
        )
    return to_interval(formula) if kind(formula) == "chain" else formula


def replace_plus_minus(formula: Formula, plus: str, minus: str) -> Formula:
    """Return a formula with the sign `plus` for \\pm and the sign `minus` for \\mp."""
    if isinstance(formula, Token):
        sign = {"\\pm": plus, "\\mp": minus}.get(formula)
        return Token("SIGN", sign) if sign else formula
    parts = [replace_plus_minus(part, plus, minus) for part in formula.children]
    if kind(formula) == "sum" and parts[0] == "+":
        return parts[1] if len(parts) == 2 else Tree("sum", parts[1:])
    return Tree(formula.data, parts)


def to_interval(chain: Tree) -> Formula:
    """Return the interval that 2 <= x < 5 or x > 2 describes; return other relations unchanged."""
    sides, relations = operands(chain), [str(part) for part in chain.children[1::2]]
    if relations == ["\\in"]:
        is_set = kind(sides[1]) in SEQUENCES or sides[1] == "\\reals"
        right = normalize(sides[1])
        right = Tree("open", right.children) if kind(right) == "tuple" else right
        return right if is_set and is_name(sides[0]) else chain
    if relations == ["\\neq"] and is_name(sides[0]):
        parts = [MINUS_INFINITY, sides[1]], [sides[1], INFINITY]
        return Tree("union", [Tree("open", part) for part in parts])
    if not {*relations} <= {"<", "\\leq"} and not {*relations} <= {">", "\\geq"}:
        return chain
    # Put the sides in increasing order. A bound that is missing is infinite.
    if relations[0] in (">", "\\geq"):
        sides, relations = sides[::-1], relations[::-1]
    # Whether the interval includes each of its two ends.
    closed = [relation in ("\\leq", "\\geq") for relation in relations]
    if len(sides) == 2:
        is_name_first = is_name(sides[0])
        sides = [MINUS_INFINITY, *sides] if is_name_first else [*sides, INFINITY]
        closed = [False, *closed] if is_name_first else [*closed, False]
    if len(sides) != 3 or not is_name(sides[1]) or any(map(has_letters, (sides[0], sides[2]))):
        return chain
    return Tree(INTERVALS[2 * closed[0] + closed[1]], [sides[0], sides[2]])


def has_letters(bound: Formula) -> bool:
    """Return whether the bound of an interval depends on a variable."""
    return not sign_of_infinity(bound) and bool(value(bound).free_symbols)


def find_named_values(formula: Formula) -> dict[Formula, Formula]:
    """Return the values by name in x = 1, y = 2 or (x, y) = (1, 2); {} for other formulas."""
    if kind(formula) == "chain" and formula.children[1::2] == ["="]:
        names, values = operands(formula)
        if any(kind(part) != "NAME" for part in operands(names)):
            return {}
        if kind(names) == kind(values) == "tuple" and len(operands(names)) == len(operands(values)):
            return dict(zip(operands(names), operands(values), strict=True))
    parts = operands(formula) if kind(formula) == "items" else []
    by_name = {operands(part)[0]: operands(part)[-1] for part in parts if is_named_equation(part)}
    return by_name if len(by_name) == len(parts) > 1 else {}


def is_named_equation(formula: Formula) -> bool:
    """Return whether a formula is an equation with a name on the left side."""
    return (
        kind(formula) == "chain"
        and formula.children[1::2] == ["="]
        and is_name(formula.children[0])
    )


def is_rounded(exact: Formula, decimal: Formula) -> bool:
    """Return whether `decimal` is the number `exact` rounded to the decimal places of `decimal`."""
    if (
        number_style(decimal) not in ("integer", "decimal")
        or has_arithmetic(exact)
        or not value(exact).is_number
    ):
        return False
    places = len(tokens(decimal)[-1].partition(".")[2])
    # At most half a unit of the last decimal place.
    return bool(abs(value(exact) - value(decimal)) * 2 * 10**places <= 1)


def is_proportional(first: Expr, second: Expr) -> bool:
    """Return whether one expression is the other times a number."""
    (first, first_below), (second, second_below) = (
        sympy.fraction(sympy.together(e)) for e in (first, second)
    )
    if first_below.free_symbols != second_below.free_symbols:
        return False
    first, second = sympy.expand(first), sympy.expand(second)
    coefficients, second_coefficients = first.as_coefficients_dict(), second.as_coefficients_dict()
    # Multiply both so that a term that both have gets the same coefficient, and compare all terms.
    common = next((key for key in coefficients if second_coefficients.get(key)), None)
    return (
        common is not None
        and sympy.expand(first * second_coefficients[common] - second * coefficients[common]) == 0
    )


def is_name(formula: Formula) -> bool:
    """Return whether a formula is a name: x, f(2), f^{-1}(2), AB, |AB|, \\angle ABC."""
    if kind(formula) == "NAME":
        return formula not in ("e", "i", "\\pi")
    if kind(formula) == "absolute":
        return kind(formula.children[0]) == "product" and is_name(formula.children[0])
    if kind(formula) == "called":
        return len(operands(formula)) == 2 and all(
            kind(part) == "NAME" or number_style(part) == "integer" for part in operands(formula)
        )
    if kind(formula) != "product" or len(formula.children) != len(operands(formula)):
        return False
    # The grammar parses f^{-1}(2), AB and \angle ABC as products.
    first, *arguments = operands(formula)
    if kind(first) == "power" and first.children[1] == MINUS_ONE:  # f^{-1}(2)
        return kind(first.children[0]) == "NAME" and len(arguments) == 1
    return all(kind(part) == "NAME" and part.isupper() for part in (first, *arguments))


def sign_of_infinity(formula: Formula) -> str:
    """Return the sign of plus or minus infinity; "" for other formulas."""
    if formula == "\\infty":
        return "+"
    is_signed = kind(formula) == "sum" and formula.children[1:] == ["\\infty"]
    return str(formula.children[0]) if is_signed else ""


def find_names(formula: Formula) -> set[str]:
    """Return the names of variables in a formula."""
    return {str(token) for token in tokens(formula) if kind(token) == "NAME"}


def has_known_names(answer: Formula, question: str) -> bool:
    """Return whether the inequalities of an answer are about one name that the question uses.

    Any name is allowed if the question has no formulas or asks for a range.
    """
    chains = [part for part in (answer, *operands(answer)) if kind(part) == "chain"]
    chains = [chain for chain in chains if "=" not in chain.children[1::2]]
    names = {side for chain in chains for side in operands(chain) if is_name(side)}
    question_names = set().union(*map(find_names, read_formulas(question)))
    if len(names) > 1:
        return False
    if "range" in question or not question_names:
        return True
    return all(find_names(name) & question_names for name in names)


def has_word(sequence: Tree, word: str) -> bool:
    """Return whether a word such as "and" is between the parts of a sequence."""
    return any(kind(part) == "SEPARATOR" and word in part for part in sequence.children)


def repeats_equation(question_chain: Tree, answer: Tree) -> bool:
    """Return whether the answer repeats an equation of the question, up to a factor."""
    if any(chain.children[1::2] != ["="] for chain in (question_chain, answer)):
        return False
    if not all(map(has_value, (*operands(question_chain), *operands(answer)))):
        return False
    return is_proportional(subtract_sides(question_chain), subtract_sides(answer))


def subtract_sides(equation: Tree) -> Expr:
    """Return the left side of an equation minus its right side."""
    first, second = map(value, operands(equation))
    return first - second
