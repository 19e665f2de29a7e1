"""Compares answers of all kinds: numbers, lists, intervals and equations.

docs/benchmarks.md describes the rules. `gold` is the known answer. A "chain" is a formula with
relations between its sides, such as x = 5 or 2 <= x < 5; `children[1::2]` are its relations. An
operation is unevaluated if it is written down but not carried out (forms.py).
"""

import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, repeat

from forms import (
    find_unevaluated,
    has_arithmetic,
    is_power_of_numbers,
    is_simplest,
    number_style,
    shape,
)
from formula import Formula, is_equal, kind, operands, parse_formula, tokens, value
from lark import Token, Tree
from latex import Unreadable
from question import (
    ORDERED,
    ROUNDED,
    find_asked_forms,
    find_asked_formulas,
    has_value,
    list_expressions,
    read_formulas,
)
from statements import (
    INTERVALS,
    SEQUENCES,
    SORTED,
    find_named_values,
    find_names,
    has_known_names,
    has_word,
    is_name,
    is_proportional,
    is_rounded,
    normalize,
    repeats_equation,
    sign_of_infinity,
    subtract_sides,
)

INTERVAL = re.compile("interval|domain|range|inequality")  # words in a question on an interval
SIGNS = ("SIGN", "TIMES", "OVER", "SEPARATOR")  # terminals of the grammar
# Operations that an answer may leave unevaluated only with the same numbers as the known answer.
ARITHMETIC = {"sum of numbers", "product of numbers"}


def is_same(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether two formulas of any kind are the same answer."""
    if gold == answer:
        return True
    if "interval notation" in question and kind(answer) == "chain" and answer.children[1] != "\\in":
        return False
    # Inequalities: both must be about the same names. Otherwise the question must use the names.
    if kind(gold) == kind(answer) == "chain" and "=" not in (
        *gold.children[1::2],
        *answer.children[1::2],
    ):
        if find_names(gold) != find_names(answer):
            return False  # x < 3 is not y < 3
    elif not has_known_names(answer, question):
        return False
    gold, answer = normalize(gold), normalize(answer)
    names = [find_named_values(formula) for formula in (gold, answer)]
    if any(names):
        return is_same_named(gold, answer, names, question)
    if kind(gold) == "chain":
        return is_same_chain(gold, answer, question)
    if kind(answer) == "chain":
        return any(is_same(gold, side, question) for side in read_solutions(answer, gold, question))
    if kind(gold) in SEQUENCES or kind(answer) in SEQUENCES:
        return is_same_sequence(gold, answer, question)
    # Infinity, and constants such as the empty set, have no value to compare.
    if (
        sign_of_infinity(gold)
        or sign_of_infinity(answer)
        or "CONSTANT" in (kind(gold), kind(answer))
    ):
        return sign_of_infinity(gold) == sign_of_infinity(answer) and (
            bool(sign_of_infinity(gold)) or gold == answer
        )
    return is_same_number(gold, answer, question)


def is_same_number(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether two expressions are the same answer.

    They must be equal, the answer must be worked out (`forms.find_unevaluated`), and it must have
    the form that the question asks for.
    """
    if not value(answer).free_symbols <= value(gold).free_symbols or not is_equal(gold, answer):
        return False
    # With letters, a root is allowed where the known answer has none: sqrt(2)^x for 2^(x/2).
    always_allowed = {"root"} if value(gold).free_symbols else set()
    unevaluated = find_unevaluated(answer)
    if not unevaluated <= find_unevaluated(gold) | always_allowed or not is_form_allowed(
        gold, answer, question
    ):
        return False
    return not unevaluated & ARITHMETIC or count_numbers(gold) == count_numbers(answer)


def count_numbers(formula: Formula) -> Counter:
    """Count the numbers and powers of numbers in a formula, other than 1."""
    if kind(formula) == "NUMBER" or is_power_of_numbers(formula):
        return Counter({value(formula): 1} if value(formula) != 1 else {})
    return sum(map(count_numbers, operands(formula)), Counter())


def is_form_allowed(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether the question allows the form in which an answer is written.

    - If the question asks for a certain form, the answer must have the form of the known answer.
    - An answer must not only repeat the question: if the question contains an expression of the
      same value, the answer must have another form.
    - A mixture of sums and products of sums is allowed only if the known answer is one.
    """
    # Pairs (shape, whether the formula is in simplest form), of the known answer and of the answer.
    expected, form = ((shape(formula), is_simplest(formula)) for formula in (gold, answer))
    if form == expected and count_letters(gold) == count_letters(answer):
        return True
    asked_for = find_asked_forms(question)
    if form[0] == "mixed up" and (expected[0] != "mixed up" or "shape" in asked_for):
        return False
    if "shape" in asked_for and (form[0] != expected[0] or has_arithmetic(answer)):
        return False
    # The known answer is in simplest form, and the answer is not.
    if form[1] < expected[1] and (asked_for or form[0] == "factored"):
        return False
    if form[0] == "integer":
        return True
    unevaluated = find_unevaluated(answer)
    # Expressions of the question that have the answer's value and are worked out as far.
    copies = [
        part
        for part in list_expressions(question)
        if find_unevaluated(part) <= unevaluated and is_equal(part, answer)
    ]
    if form == expected and any(count_letters(part) == count_letters(gold) for part in copies):
        return True  # the question states the known answer itself
    return not any((shape(part), is_simplest(part)) == form for part in copies)


def count_letters(formula: Formula) -> Counter:
    """Count the letters and numbers in a formula."""
    return Counter(token for token in tokens(formula) if kind(token) not in SIGNS)


def is_same_sequence(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether lists, sets, unions, tuples, intervals or matrices have the same parts.

    A list without brackets may be used for a tuple (in its order) and for a set. A list of
    intervals may be used for their union.
    """
    rules = {kind(gold), kind(answer)}
    gold_elements, answer_elements = operands(gold), operands(answer)
    if not rules <= SEQUENCES:  # {5} is the same as 5
        gold_parts, answer_parts = (gold_elements or [gold]), (answer_elements or [answer])
        are_single = (
            "set" in rules
            and len(gold_parts) == len(answer_parts) == 1
            and "CONSTANT" not in map(kind, gold_parts)
        )
        return are_single and is_same(gold_parts[0], answer_parts[0], question)
    if len(gold_elements) != len(answer_elements):
        return False
    # A list with "and" or "or" between its items is not a tuple.
    if "tuple" in rules and any(has_word(listed, '"') for listed in (gold, answer)):
        return False
    # A list without brackets may be a tuple, but not one of equations, and not an interval.
    has_names = "chain" in map(kind, (*gold_elements, *answer_elements))
    is_unbracketed_tuple = rules == {"items", "tuple"} and not (
        has_names
        or (len(gold_elements) == 2 and INTERVAL.search(question))
        or any(map(sign_of_infinity, gold_elements))
    )
    is_ordered_list = rules <= {"items", "set"} and ORDERED.search(question)
    if (
        is_unbracketed_tuple
        or is_ordered_list
        or rules <= {"tuple", "open"}  # (1, 2) is parsed as a tuple, but may be an interval
        or len(rules & SORTED) == len(rules) == 1  # the same kind, whose parts have an order
    ):
        return all(map(is_same, gold_elements, answer_elements, repeat(question)))
    lists = [formula for formula in (gold, answer) if kind(formula) == "items"]
    is_union = rules <= {"items", "union"} and not any(has_word(listed, "and") for listed in lists)
    is_union = is_union and all(
        kind(part) in INTERVALS for listed in lists for part in operands(listed)
    )
    return (rules <= {"items", "set"} or is_union) and is_permutation(
        gold_elements, answer_elements, question
    )


def is_permutation(
    gold_elements: Sequence[Formula], answer_elements: Sequence[Formula], question: str
) -> bool:
    """Return whether two lists have the same elements in any order."""
    unmatched = list(answer_elements)
    for part in gold_elements:
        match = next((element for element in unmatched if is_same(part, element, question)), None)
        if match is None:
            return False
        unmatched.remove(match)
    return True


def is_same_named(gold: Formula, answer: Formula, names: list[dict], question: str) -> bool:
    """Return whether values with names, such as x = 1, y = 2, are the same.

    If only one side has names, the values are compared in the order of the names: the order in
    which the question lists them, else the alphabetical order.

    Args:
        names: values by name, of the known answer and of the answer; empty for a side without
            names.
    """
    expected, answers = names
    if expected and answers:
        return expected.keys() == answers.keys() and all(
            is_same(expected[name], answers[name], question) for name in expected
        )
    if expected:
        return is_same_sequence(Tree("tuple", list(expected.values())), answer, question)
    order = next(
        (
            operands(part)
            for part in read_formulas(question)
            if kind(part) == "tuple" and set(operands(part)) == set(answers)
        ),
        None,
    )
    values = [answers[name] for name in order or sorted(answers, key=lambda n: str(n).strip("\\"))]
    gold = Tree("tuple", operands(gold)) if kind(gold) in ("items", "tuple") else gold
    return is_same_sequence(gold, Tree("tuple", values), question)


def is_same_chain(gold: Tree, answer: Formula, question: str) -> bool:
    """Return whether an answer is the same as a known answer that is an equation or inequality."""
    sides, relations = operands(gold), gold.children[1::2]
    # The same sides and relations. The sides of an equation may be swapped.
    if kind(answer) == "chain" and answer.children[1::2] == relations:
        orders = (
            [operands(answer), operands(answer)[::-1]]
            if {*relations} == {"="}
            else [operands(answer)]
        )
        if any(all(map(is_same_side, sides, order, repeat(question))) for order in orders):
            return True
    if relations != ["="] or (kind(answer) == "chain" and answer.children[1::2] != ["="]):
        return False
    # From here on the known answer is an equation with two sides.
    name, expected = sides
    if kind(answer) != "chain":
        return is_name(name) and is_same(expected, answer, question)
    chains = [formula for formula in read_formulas(question) if kind(formula) == "chain"]
    if any(repeats_equation(chain, answer) for chain in chains):
        return False
    # Another equation is right if it follows by multiplying with a number, unless the known answer
    # is a value of a name (x = 5), defines the same name, or the question asks for a form.
    is_solved = is_name(name) and not value(expected).free_symbols
    is_worked_out = find_unevaluated_in_sides(answer) <= find_unevaluated_in_sides(gold) | {"root"}
    has_same_name = is_name(name) and (name in operands(answer) or kind(name) == "called")
    if is_solved or has_same_name or find_asked_forms(question) or not is_worked_out:
        return False
    return is_proportional(subtract_sides(gold), subtract_sides(answer))


def is_same_side(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether sides of two equations are the same. f(x) is not the same as f times x."""
    kinds = {kind(gold), kind(answer)}
    return (len(kinds) == 1 or "called" not in kinds) and is_same(gold, answer, question)


def find_unevaluated_in_sides(chain: Tree) -> set[str]:
    """Return what the sides of an equation leave unevaluated (`forms.find_unevaluated`)."""
    return set().union(*map(find_unevaluated, operands(chain)))


def read_solutions(chain: Tree, gold: Formula, question: str) -> list[Formula]:
    """Return the values that an answer such as x = 5 or x = 10/2 = 5 states; [] if it states none.

    The value is the last side. Each other side must be a name, a formula that the question asks
    for, or equal to the value. The rounded value may follow after \\approx. It is returned too if
    the question asks for rounding or the known answer is a decimal.
    """
    sides, relations = operands(chain), chain.children[1::2]
    rounded = []
    if relations[-1] == "\\approx" and all(map(is_name, sides[:-1])):
        return sides[-1:]
    if relations[-1] == "\\approx" and is_rounded(*sides[-2:]):
        is_asked_for = number_style(gold) == "decimal" or ROUNDED.search(question)
        rounded = sides[-1:] if is_asked_for else []
        sides, relations = sides[:-1], relations[:-1]
    equal = Token("RELATION", "=")
    equations = [Tree("chain", [first, equal, second]) for first, second in pairwise(sides)]
    if any(relation != "=" for relation in relations) or {*equations} & {*read_formulas(question)}:
        return []
    *named_sides, last = sides[::-1] if is_name(sides[-1]) else sides
    fits = all(
        (is_name(side) and side not in tokens(last))
        or equals_asked_formula(side, question)
        or (has_value(last) and is_equal(side, last))
        for side in named_sides
    )
    return [last, *rounded] if fits else []


def equals_asked_formula(side: Formula, question: str) -> bool:
    """Return whether an expression with letters equals a formula that the question asks for."""
    if not has_value(side) or not value(side).free_symbols:
        return False
    for text in find_asked_formulas(question):
        with contextlib.suppress(Unreadable):
            if is_equal(side, parse_formula(text)):
                return True
    return False
