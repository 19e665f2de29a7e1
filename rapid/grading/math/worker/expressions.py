"""Compares numbers and formulas with letters: their values, what they leave to be done, their form.

docs/benchmarks.md describes the rules. `gold` is the known answer. An operation is unevaluated if
it is written but not carried out (forms.py).
"""

import re
from collections import Counter
from functools import lru_cache

from copies import (
    combines_formulas,
    count_symbols,
    describe_structure,
    has_form_of_any,
    is_stated,
)
from forms import (
    FACTORED_QUOTIENT,
    OTHER_SHAPE,
    count_numbers,
    find_unevaluated,
    get_power_base,
    has_arithmetic,
    is_simplest,
    number_style,
    shape,
)
from formula import (
    EVERY_LETTER,
    FUNCTION_NAMES,
    Formula,
    get_letter,
    is_equal,
    is_exponential,
    kind,
    operands,
    tokens,
    value,
)
from lark import Tree
from question import find_asked_forms, find_vectors, list_expressions, read_formulas
from statements import is_name
from sympy import Rational

# Operations that an answer may leave unevaluated only with the same numbers as the known answer.
SUMS_AND_PRODUCTS = {"sum of numbers", "product of numbers"}


def is_same_number(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether two expressions are the same answer.

    They must be equal. The answer may leave unevaluated only what the known answer leaves
    unevaluated too (`forms.find_unevaluated`), and must have the form that the question asks for.
    """
    if not value(answer).free_symbols <= value(gold).free_symbols or not is_equal(gold, answer):
        return False
    vectors = find_vectors(question)
    gold_products, answer_products = (
        list_vector_products(formula, vectors) for formula in (gold, answer)
    )
    if gold_products != answer_products:
        return False
    # With letters, a root is allowed where the known answer has none: sqrt(2)^x for 2^(x/2).
    always_allowed = {"root"} if value(gold).free_symbols else set()
    unevaluated = find_unevaluated(answer)
    # sqrt(3)/2 times i is allowed for sqrt(3)i/2, unless it only repeats the question.
    if FACTORED_QUOTIENT in unevaluated and not any(
        FACTORED_QUOTIENT in find_unevaluated(part) and is_equal(part, answer)
        for part in list_expressions(question, find_functions(gold, question))
    ):
        always_allowed.add(FACTORED_QUOTIENT)
    if not unevaluated <= find_unevaluated(gold) | always_allowed or not is_form_allowed(
        gold, answer, question
    ):
        return False
    return not unevaluated & SUMS_AND_PRODUCTS or count_numbers(gold) == count_numbers(answer)


def list_vector_products(formula: Formula, vectors: set[str]) -> Counter:
    """Count the products of several vectors or matrices in a formula, as their factors and signs.

    The order of the factors counts unless the sign is a dot: neither a \\times b nor AB may be
    turned round.
    """
    products = Counter()
    for part in formula.iter_subtrees() if isinstance(formula, Tree) else []:
        texts = [str(factor) for factor in operands(part) if vectors & {*tokens(factor)}]
        if kind(part) == "product" and len(texts) > 1:
            signs = [str(sign) for sign in part.children if kind(sign) == "TIMES"]
            products[*signs, *(sorted(texts) if "\\cdot" in signs else texts)] += 1
    return products


@lru_cache(maxsize=256)
def find_functions(gold: Formula, question: str) -> frozenset[str]:
    """Return the letters of names that are functions before brackets, others being factors.

    A name is a function if the question or the known answer has it before a name or number in
    brackets, as in P(A) and h(2), or if the question calls it one, and if the known answer has it
    nowhere else. So are f and g, unless they are formulas of the question, as in "in terms of $m$
    and $g$".
    """
    formulas = read_formulas(question, EVERY_LETTER)
    called_names = {
        get_letter(name)
        for formula in (gold, *formulas)
        for name, *arguments in map(operands, list_calls(formula))
        if [*map(kind, arguments)] in (["NAME"], ["NUMBER"])
        and name not in ("e", "i", "\\pi")
        and kind(name) == "NAME"  # x^{-1}(y) may be y/x
    }
    described_names = [
        before or after
        for before, after in re.findall(
            r"(?:function|polynomial)s? (?:\$(?=[a-zA-Z][$(]))?([a-zA-Z])\b"
            r"|\$([a-zA-Z])\$ (?:is|be) (?:an? |the )(?:\w+ )?(?:function|polynomial)",
            question,
        )
    ]
    quantities = {str(formula) for formula in formulas if is_name(formula)}
    names = {*called_names, *described_names} | (FUNCTION_NAMES - quantities)
    names_of_calls = Counter(get_letter(tokens(call)[0]) for call in list_calls(gold))
    all_names = Counter(get_letter(token) for token in tokens(gold) if kind(token) == "NAME")
    return frozenset(name for name in names if all_names[name] == names_of_calls[name])


def list_calls(formula: Formula) -> list[Tree]:
    """Return the parts of a formula that are functions with arguments, such as f(x)."""
    return [*formula.find_data("name_call")] if isinstance(formula, Tree) else []


def is_form_allowed(gold: Formula, answer: Formula, question: str) -> bool:
    """Return whether the question allows the form in which an answer is written.

    If the question asks for a shape, or has an exponential such as 2^n with the value of the
    answer, the answer's exponentials must have the bases of the known answer: 4^n is not 2^{2n}.

    The form is the shape (`forms.shape`) and whether the formula is in simplest form. An answer
    with the form of the known answer and the same symbols is allowed, unless it is a copy: it has
    the structure of an expression of the question (copies.py), and the known answer has not. For
    others:

    - If the question asks for a shape, the answer must have the shape of the known answer, and no
      arithmetic that is left to be done.
    - If the question asks for a shape or for the simplest form, or the answer is factored, the
      answer must be in simplest form if the known answer is.
    - A formula that is neither expanded nor factored is allowed only if the known answer is one
      and the question asks for no shape.
    - An answer must not only multiply or divide formulas of the question (`combines_formulas`), if
      the known answer has another form.
    - An answer must not only repeat the question: if the question contains an expression of the
      same value, the answer must have another form. Integers are an exception, and decimals if the
      known answer is a decimal or an integer, and so are answers in the form of the known answer
      if the question states the known answer itself.
    """
    asked_forms = find_asked_forms(question)  # a subset of {"shape", "simplest"}
    expressions = list_expressions(question, find_functions(gold, question))
    if list_bases(gold) != list_bases(answer) and (
        "shape" in asked_forms
        or any(list_bases(part) and is_equal(part, answer) for part in expressions)
    ):
        return False
    gold_shape, answer_shape = shape(gold), shape(answer)
    if gold_shape == answer_shape and describe_structure(gold) == describe_structure(answer):
        return True  # and `is_simplest` need not be found out, which may take long
    is_same_form = gold_shape == answer_shape and is_simplest(gold) == is_simplest(answer)
    if is_same_form and count_symbols(gold) == count_symbols(answer):
        return not is_stated(answer, expressions) or is_stated(gold, expressions)
    if answer_shape == OTHER_SHAPE and (gold_shape != OTHER_SHAPE or "shape" in asked_forms):
        return False
    if "shape" in asked_forms and (answer_shape != gold_shape or has_arithmetic(answer)):
        return False
    if (asked_forms or answer_shape == "factored") and (
        is_simplest(gold) and not is_simplest(answer)
    ):
        return False
    if answer_shape == "integer":
        return True
    if number_style(answer) == "decimal" and number_style(gold) in ("decimal", "integer"):
        return True
    if not is_same_form and combines_formulas(answer, question, find_functions(gold, question)):
        return False
    if is_same_form and is_stated(gold, expressions):
        return True  # one of several choices
    return not has_form_of_any(answer, expressions)


def list_bases(formula: Formula) -> set[Rational]:
    """Return the bases of the exponentials in a formula: {4} for 4^n + 1."""
    parts = formula.iter_subtrees() if isinstance(formula, Tree) else []
    return {value(get_power_base(part)) for part in parts if is_exponential(part)}
