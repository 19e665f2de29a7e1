"""Compares answers of all kinds: numbers, lists, intervals and equations.

docs/benchmarks.md describes the rules, and grammar.lark the kinds of formulas. `gold` is the known
answer. The children of a chain, such as 2 <= x < 5, are its sides and, between them, its relations
(`children[1::2]`). An operation is unevaluated if it is written but not carried out (forms.py).
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise, repeat

from answer_kinds import asks_interval, asks_tuple, has_ordered_values, is_about_intervals
from expressions import find_functions, is_same_number
from forms import find_unevaluated
from formula import (
    Formula,
    drop_plus_sign,
    is_equal,
    kind,
    operands,
    parse_formula,
    tokens,
    value,
)
from lark import Token, Tree
from latex import Unreadable
from question import (
    ROUNDING_WORDS,
    find_asked_forms,
    find_asked_formulas,
    find_request,
    has_value,
    read_formulas,
)
from statements import (
    COLLECTION_KINDS,
    INTERVAL_KINDS,
    ORDERED_KINDS,
    are_names_of_question,
    find_named_values,
    find_variables,
    has_inequalities_in_name_of_question,
    has_separator,
    is_equation,
    is_name,
    is_proportional,
    is_rounded,
    list_inequalities,
    must_be_rounded,
    normalize,
    repeats_equation,
    sign_of_infinity,
    subtract_sides,
)


def is_same(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether two formulas of any kind are the same answer."""
    gold, answer = drop_plus_sign(gold), drop_plus_sign(answer)
    if gold == answer:
        return True
    # A question for interval notation allows x \in (1, 2), but not 1 < x < 2.
    chains = [part for part in (answer, *operands(answer)) if kind(part) == "chain"]
    if "interval notation" in question and any(part.children[1] != "\\in" for part in chains):
        return False
    # If both are inequalities, they must use the same names. Otherwise the answer's inequalities
    # may have only one name, one of the question. `has_inequalities_in_name_of_question` says when
    # any name is allowed.
    gold_names, answer_names = (
        set().union(*map(find_variables, list_inequalities(formula))) for formula in (gold, answer)
    )
    if gold_names and answer_names:
        if gold_names != answer_names:
            return False  # x < 3 is not y < 3
    elif not has_inequalities_in_name_of_question(answer, question):
        return False
    gold, answer = normalize(gold), normalize(answer)
    if find_named_values(gold) or find_named_values(answer):
        return is_same_named(gold, answer, question)
    if kind(gold) == "chain":
        return is_same_chain(gold, answer, question)
    if kind(answer) == "chain":
        return any(
            is_same(gold, solution, question) for solution in read_solutions(answer, gold, question)
        )
    if kind(gold) in COLLECTION_KINDS or kind(answer) in COLLECTION_KINDS:
        return is_same_collection(gold, answer, question)
    # Infinity, and constants such as the empty set, have no value to compare.
    gold_sign, answer_sign = sign_of_infinity(gold), sign_of_infinity(answer)
    if gold_sign or answer_sign or "CONSTANT" in (kind(gold), kind(answer)):
        return gold == answer or gold_sign == answer_sign != ""
    return is_same_number(gold, answer, question)


def is_same_collection(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether lists, sets, unions, tuples, intervals or matrices have the same parts.

    A list, which has no brackets, may be used for a tuple (in its order) and for a set. A list of
    intervals may be used for their union.
    """
    kinds = {kind(gold), kind(answer)}
    # {5} is the same as 5, and {(1, 2)} as the tuple (1, 2). But a set that contains a set, even
    # the empty one, is not that set.
    may_contain_tuple = kinds == {"set", "tuple"} and not asks_interval(question)
    collection_kinds = COLLECTION_KINDS - ({"tuple"} if may_contain_tuple else set())
    gold_elements, answer_elements = (
        operands(formula) if kind(formula) in collection_kinds else [formula]
        for formula in (gold, answer)
    )
    if not kinds <= collection_kinds:
        are_single = (
            "set" in kinds
            and len(gold_elements) == len(answer_elements) == 1
            and not {"CONSTANT", "set"} & {*map(kind, (*gold_elements, *answer_elements))}
        )
        return are_single and is_same(gold_elements[0], answer_elements[0], question)
    if len(gold_elements) != len(answer_elements):
        return False
    # Only a whole answer may be in braces: {1, {2}} is not {1, 2}.
    gold_kinds, answer_kinds = (
        Counter(map(kind, elements)) for elements in (gold_elements, answer_elements)
    )
    if gold_kinds["set"] != answer_kinds["set"]:
        return False
    # A list with the word "and" or "or" between its elements is not a tuple. A separator contains a
    # word if it contains a double quote.
    if "tuple" in kinds and any(has_separator(formula, '"') for formula in (gold, answer)):
        return False
    # A list may stand for a tuple, but not if it has equations or inequalities, and not for a pair
    # that may be an interval.
    has_relations = "chain" in map(kind, (*gold_elements, *answer_elements))
    is_unbracketed_tuple = kinds == {"list", "tuple"} and not (
        has_relations or not is_tuple(gold, question) or any(map(sign_of_infinity, gold_elements))
    )
    # 1, 3, 5, \dots goes on as its order tells. Two pairs are no values of two different things.
    are_values = "tuple" not in gold_kinds or asks_interval(question)
    has_order = "\\dots" in gold_elements or (
        are_values and has_ordered_values(question, len(gold_elements))
    )
    is_ordered_list = kind(gold) == "list" and kinds <= {"list", "set"} and has_order
    if (
        is_unbracketed_tuple
        or is_ordered_list
        or (kinds == {"tuple", "open_interval"} and may_be_interval(gold, question))
        or len(kinds & ORDERED_KINDS) == len(kinds) == 1  # the same kind, whose parts have an order
    ):
        return all(map(is_same, gold_elements, answer_elements, repeat(question)))
    lists = [formula for formula in (gold, answer) if kind(formula) == "list"]
    # x < 1 or x > 3 is not x < 1 and x > 3. A comma may stand for either word there.
    if len(lists) == 2 and any(kind(part) in (*INTERVAL_KINDS, "union") for part in gold_elements):
        words = {word for word in ("and", "or") for part in lists if has_separator(part, word)}
        if len(words) > 1:
            return False
    is_union = (
        kinds <= {"list", "union"}
        and not any(has_separator(formula, "and") for formula in lists)
        and all(kind(part) in INTERVAL_KINDS for formula in lists for part in operands(formula))
    )
    return (kinds <= {"list", "set"} or is_union) and is_permutation(
        gold_elements, answer_elements, question
    )


def may_be_interval(gold: Tree, question: str) -> bool:
    """Return whether a known answer such as (1, 2) can be an open interval.

    It can if the question asks for no tuple. The answer, such as 1 < x < 2, is an interval by its
    form, so that the question need not say that it asks for one. If the known answer is an
    interval, the answer may be a pair.
    """
    if kind(gold) == "open_interval":
        return True
    return has_increasing_ends(gold) and not asks_tuple(question)


def is_tuple(formula: Tree, question: str) -> bool:
    """Return whether a tuple or list is a tuple, and no interval.

    A pair that could be an open interval is a tuple only if the question asks for one, but a list
    of two is no tuple only if the question is about intervals.
    """
    if kind(formula) == "list":
        return len(operands(formula)) != 2 or not is_about_intervals(question)
    return not has_increasing_ends(formula) or asks_tuple(question)


def has_increasing_ends(formula: Tree) -> bool:
    """Return whether a tuple is a pair of real numbers, the first of which is smaller."""
    ends = operands(formula)
    if len(ends) != 2 or not all(map(has_value, ends)):
        return False
    return bool((value(ends[1]) - value(ends[0])).is_positive)


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


def is_same_named(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether values with names, such as x = 1, y = 2, are the same.

    If only the answer has names, the values are compared in the order of a tuple of the names in
    the question, or else in that of `order_names`. If only the known answer has names, the values
    are compared in the known answer's order. The answer may not make up names.
    """
    gold_values, answer_values = find_named_values(gold), find_named_values(answer)
    if gold_values and answer_values:
        return gold_values.keys() == answer_values.keys() and all(
            is_same(gold_values[name], answer_values[name], question) for name in gold_values
        )
    if "open_interval" in (kind(gold), kind(answer)):
        return False  # 1 < x < 2 is not x = 1, y = 2
    if gold_values:
        is_tuple_of_values = (
            kind(answer) == "list"
            and not has_separator(answer, '"')
            and "chain" not in map(kind, operands(answer))
        )
        answer = Tree("tuple", operands(answer)) if is_tuple_of_values else answer
        return is_same_collection(Tree("tuple", list(gold_values.values())), answer, question)
    if "chain" in map(kind, operands(gold)):
        return False  # x = 1, x = 2 is not x = 1, y = 2
    # In (h, k) = (1, 2) the names say no more than the order.
    if kind(answer) == "list" and not are_names_of_question(answer_values, gold, question):
        return False
    # x_1 = 1, x_2 = 2 are roots, unless the question asks for these names. f(1), f(2) are no roots.
    letters = {str(name).partition("_")[0] for name in answer_values}
    are_roots = (
        len(letters) == 1
        and {*map(kind, answer_values)} == {"NAME"}
        and not {*answer_values} <= {*read_formulas(find_request(question))}
    )
    if are_roots and kind(gold) == "list":
        return is_same_collection(gold, Tree("list", [*answer_values.values()]), question)
    tuples = find_tuples_of(answer_values, question)
    # A known answer (1, 2) may be an interval, unless the question has a tuple of the names, and a
    # known answer 1, 2 may be the values of one name.
    if not tuples and kind(gold) == "tuple":
        is_bracketed = kind(answer) != "list" and not asks_interval(question)
        if not is_bracketed and not is_tuple(gold, question):
            return False
    if kind(gold) == "list":
        are_different = (
            has_ordered_values(question, len(answer_values))
            or asks_tuple(question)
            or {*answer_values} <= {*read_formulas(question)}
        )
        if has_separator(gold, "or") or not are_different:
            return False
        gold = Tree("tuple", operands(gold))
    names = [*tuples, order_names(answer, question)][0]
    values = Tree("tuple", [answer_values[name] for name in names])
    return is_same_collection(gold, values, question)


def find_tuples_of(names: Collection[Formula], question: str) -> list[list[Formula]]:
    """Return the tuples or lists of certain names in a question, in its order of the names."""
    return [
        operands(part)
        for part in read_formulas(question)
        if kind(part) in ("tuple", "list") and set(operands(part)) == set(names)
    ]


def order_names(answer: Formula, question: str) -> list[Formula]:
    """Return the names of an answer's values in the order in which a tuple has the values.

    This is the alphabetical order for the coordinates x, y and z, and else the order in a tuple of
    the answer, such as (m, b) = (2, 3). For m = 2, b = 3 it is the order in which the question has
    the names as formulas of their own, or the alphabetical order if it does not have them.
    """
    names = list(find_named_values(answer))
    if not {*names} <= {*"xyz"}:
        if kind(answer) != "list":
            return names
        mentioned = [part for part in dict.fromkeys(read_formulas(question)) if part in names]
        if len(mentioned) == len(names):
            return mentioned
    return sorted(names, key=lambda name: str(name).strip("\\"))


def is_same_chain(gold: Tree, answer: Formula, question: str) -> bool:
    """Return whether an answer is the same as a known answer that is an equation or inequality."""
    sides, relations = operands(gold), gold.children[1::2]
    # The same sides and relations. The sides of an equation may be swapped.
    if kind(answer) == "chain" and answer.children[1::2] == relations:
        orders = [operands(answer)]
        if {*relations} == {"="}:
            orders.append(orders[0][::-1])
        if any(all(map(is_same, sides, order, repeat(question))) for order in orders):
            return True
    if not is_equation(gold):
        return False
    left_side, right_side = sides
    if kind(answer) != "chain":
        return is_name(left_side) and is_same(right_side, answer, question)
    if not is_equation(answer) or any(
        repeats_equation(formula, answer)
        for formula in read_formulas(question, find_functions(gold, question))
    ):
        return False
    # Another equation is right if it is the known answer times a number, except in these cases: the
    # known answer gives the value of a name (x = 5); it defines a function; its left side is a name
    # that is also a side of the answer; the question asks for a form; the answer leaves more
    # unevaluated.
    is_solved = is_name(left_side) and not value(right_side).free_symbols
    is_evaluated = find_unevaluated_in_sides(answer) <= find_unevaluated_in_sides(gold) | {"root"}
    is_definition = is_name(left_side) and (
        left_side in operands(answer) or kind(left_side) == "name_call"
    )
    if is_solved or is_definition or find_asked_forms(question) or not is_evaluated:
        return False
    return is_proportional(subtract_sides(gold), subtract_sides(answer))


def find_unevaluated_in_sides(chain: Tree) -> set[str]:
    """Return the union of `forms.find_unevaluated` for the sides of an equation."""
    return set().union(*map(find_unevaluated, operands(chain)))


def read_solutions(chain: Tree, gold: Formula, question: str) -> list[Formula]:
    """Return the values that an answer such as x = 5 or x = 10/2 = 5 states; [] if it states none.

    The value is the last side, or the first if the last is a name. Each other side must be a name,
    a formula that the question asks for, or equal to the value. The rounded value may follow after
    \\approx. It is returned too if the question asks for rounding, or if the known answer is a
    decimal that must be rounded (`statements.must_be_rounded`).
    If only names come before \\approx, as in x \\approx 3.14, only the rounded value is returned.

    An answer that repeats an equation of the question, or has other relations, states no value.
    """
    sides, relations = operands(chain), chain.children[1::2]
    rounded = []
    if relations[-1] == "\\approx" and all(map(is_name, sides[:-1])):
        return sides[-1:] if {*relations[:-1]} <= {"="} else []
    if relations[-1] == "\\approx" and is_rounded(*sides[-2:]):
        may_be_rounded = ROUNDING_WORDS.search(question) or must_be_rounded(gold, sides[-2])
        rounded = sides[-1:] if may_be_rounded else []
        sides, relations = sides[:-1], relations[:-1]
    equal = Token("RELATION", "=")
    equations = [Tree("chain", [first, equal, second]) for first, second in pairwise(sides)]
    question_formulas = read_formulas(question, find_functions(gold, question))
    if any(relation != "=" for relation in relations) or {*equations} & {*question_formulas}:
        return []
    *other_sides, solution = sides[::-1] if is_name(sides[-1]) else sides
    is_stated = all(
        (is_name(side) and side not in tokens(solution))
        or equals_asked_formula(side, gold, question)
        or (has_value(solution) and is_equal(side, solution))
        for side in other_sides
    )
    return [solution, *rounded] if is_stated else []


def equals_asked_formula(side: Formula, gold: Formula, question: str) -> bool:
    """Return whether an expression with letters equals a formula that the question asks for."""
    if not has_value(side) or not value(side).free_symbols:
        return False
    functions = find_functions(gold, question)
    for text in find_asked_formulas(question):
        with contextlib.suppress(Unreadable):
            if is_equal(side, parse_formula(text, functions)):
                return True
    return False
