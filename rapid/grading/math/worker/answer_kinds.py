"""Finds out which kind of answer a question asks for: a tuple, an interval, or values in an order.

A known answer such as (1, 2) is a tuple or an open interval, and 1, 2 are values of one thing, as
roots are, or of two. Only the question can tell.
"""

import re
from itertools import combinations

from formula import is_tuple_of_names, kind, operands
from lark import Tree
from question import (
    FINDING_VERBS,
    QUESTION_WORDS,
    WRITING_VERBS,
    find_request,
    read_formulas,
    split_sentences,
)
from statements import find_variables

# Words of a question whose answer may be an interval, if it has an inequality and in any case.
SOLVE_WORDS = re.compile(r"(?i)\bsolv|\bsolution|\bvalues? of|\bfor (?:what|which)\b")
INTERVAL_WORDS = re.compile(r"(?i)interval|\bdomain|\brange|inequalit")
# A request for all values of one unknown or expression, and for where or when something has a sign
# or rises.
ONE_UNKNOWN = re.compile(
    r"(?i)\bvalues (?:of|for) (?:the (?:expression|sum|product|ratio)"
    r"|\\\[|\$[^$,]+\$(?! and|,? \$))"
    r"|\b(?:what|which|all)(?: (?:real|possible|positive|negative))*(?: numbers?)?"
    r" \$[a-z]\$(?! and|,? \$)"
)
SIGN_REQUEST = re.compile(
    r"(?i)\b(?:where|when|on what|for (?:what|which))\b[^.?!]*\b(?:negative|positive|above|below"
    r"|greater|less|increas|decreas|rising|falling|concave|convex|converge|defined)"
)
# Nouns before names, as in "the real numbers $a$ and $b$", and two names or more, which commas or
# "and" separate.
NOUNS = (
    r"(?: (?:the|all|both|two|three|real|rational|positive|negative|non-?negative|whole|constants?"
    r"|coefficients?|parameters?|variables?|unknowns?|numbers?|integers?|values? (?:of|for)))*"
)
NAMES = r"\$[a-z](?:(?:\$,? and \$|\$, \$|, ?)[a-z])+\$"
# Words with which a question asks for a tuple: pairs, points and other things with coordinates,
# where curves meet, and a form such as (larger, smaller).
TUPLE_WORDS = re.compile(
    rf"(?i)\bordered\b|\b(?:values? of|for|(?:{FINDING_VERBS}|for what|for which){NOUNS}) {NAMES}"
    rf"|\b(?:{FINDING_VERBS}|{WRITING_VERBS}|convert|(?<!for )(?:what|which))\b[^.?!,$]*"
    r"\b(?:pair|triple|(?:mid|end)?point|coordinate|vector|[a-z]*center|centroid|vert[ei]|foc(?:us|i)"
    r"|foot|intersection|reflection|location)"
    r"|\bwhere\b[^.?!]*\b(?:intersect|meet|cross)|\breflection of\b"
    r"|\bcoordinates of the\b|\bimage of \$[a-z]?\(-?\d|\bto \w+ coordinates"
    r"|\b(?:as|form) \([a-z ]+(?:, ?[a-z ]+)+\)"
)
# A system to solve, or one of equations. "Coordinate system" and the like are none.
SYSTEM_WORDS = re.compile(
    r"(?i)\bsystem of (?:\w+ )?equations|\b(?:solv\w*|solutions?)\b[^.?!$]* system\b"
)
# Words that ask for an order. "In order to" and "greatest integer less than or equal to" do not.
ORDER_WORDS = re.compile(
    r"(?i)\bin (?:\w+ order\b|order\b(?!\s+(?:for|that|to)\b))"
    r"|\b(?:least|greatest|smallest|largest)\b[^.?!]*"
    r"\b(?:first|to (?:the )?(?:least|greatest|smallest|largest))\b"
    r"|ascending|descending|respectively|beginning with|starting with|arrange|\bsort\b"
    r"|\b(?:as|form) \$[a-zA-Z]\$?, *\$?[a-zA-Z]\b"
)
# What a request lists after its verb: the things that it asks for.
REQUESTED_THINGS = re.compile(
    rf"(?i)\b(?:{FINDING_VERBS}|solve for|what (?:is|are|was|were)|how many|how old (?:is|are)"
    rf"|constants(?= \$)|(?:{WRITING_VERBS})(?= the\b)) (?=((?:\$[^$]*\$|[^$.?!:;])+))"
)
FORMULA = re.compile(r"\$[^$]*\$")
# Words that make a thing one whose values have no order, or that begin its description, so that
# "and" joins no things; a preposition, after which "and" joins things only if one value belongs to
# the first or if both have the same structure; and the start of what is no thing.
UNORDERED_THING = re.compile(
    r"(?i)\b(?:all|possible|roots|zeros|zeroes|solutions|factors|divisors"
    r"|that|which|whose|who|where|when|if|with|for|such|so|given|between|from|to|by|than|is|are"
    r"|satisf\w*)\b"
)
PREPOSITION = re.compile(r"(?i)(s?) (of|in|on|at|under|over|as|into)\b")
SAME_MEASURE = re.compile(r"(?i)\b(?:value|length|measure|area|volume|perimeter|slope)s? of \$$")
ARTICLE = re.compile(r"(?i)(?:the|an?|its|their|how many|[a-z]+'s)\b")
VERB_START = re.compile(
    rf"(?i)(?:{FINDING_VERBS}|{WRITING_VERBS}|list|separate|order|explain|show|prove|simplify|round"
    r"|then|state|justify|leave|put|use)\b"
)


def asks_interval(question: str) -> bool:
    """Return whether there is evidence that a question asks for an interval.

    It is about intervals, or asks for the values of one unknown, or for where something is negative
    or rises, and it asks for no tuple.
    """
    has_evidence = ONE_UNKNOWN.search(question) or SIGN_REQUEST.search(question)
    return is_about_intervals(question) or (has_evidence is not None and not asks_tuple(question))


def is_about_intervals(question: str) -> bool:
    """Return whether a question names intervals or has an inequality to solve, but no tuple."""
    if asks_tuple(question):
        return False
    if INTERVAL_WORDS.search(question):
        return True
    # x < y compares two names, and is no inequality to solve.
    return SOLVE_WORDS.search(question) is not None and any(
        not {"<", ">", "\\leq", "\\geq"}.isdisjoint(chain.children)
        and [*map(kind, operands(chain))].count("NAME") < 2
        for formula in read_formulas(question)
        if isinstance(formula, Tree)
        for chain in formula.find_data("chain")
    )


def asks_tuple(question: str) -> bool:
    """Return whether there is evidence that a question asks for a tuple.

    It does so by its words, by names such as (x, y), by listing two things, or by a system of
    equations, unless it asks for one unknown, such as a parameter of the system. If it is about
    intervals, names in brackets may be an interval.
    """
    if TUPLE_WORDS.search(question):
        return True
    if INTERVAL_WORDS.search(question):
        return False
    sentences = filter(QUESTION_WORDS.search, split_sentences(question))
    has_names = any(
        is_tuple_of_names(formula) for sentence in sentences for formula in read_formulas(sentence)
    )
    has_system = not ONE_UNKNOWN.search(question) and (
        SYSTEM_WORDS.search(question) is not None or has_system_of_equations(question)
    )
    return has_names or has_system or lists_things(question, 2)


def has_system_of_equations(question: str) -> bool:
    """Return whether a question has two equations with two common unknowns."""
    equations = {
        chain
        for formula in read_formulas(question)
        if isinstance(formula, Tree)
        for chain in formula.find_data("chain")
        if "=" in chain.children
        and {"name_call", "name_product"}.isdisjoint(map(kind, operands(chain)))
    }
    unknowns = [find_variables(equation) - {"e", "i", "\\pi"} for equation in equations]
    return any(len(first & second) > 1 for first, second in combinations(unknowns, 2))


def has_ordered_values(question: str, count: int) -> bool:
    """Return whether a question asks for several values in an order.

    It does so with a word of ORDER_WORDS, or if it lists as many different things as there are
    values (`count`), such as the mean and the median. Roots are not different things.
    """
    return ORDER_WORDS.search(question) is not None or lists_things(question, count)


def lists_things(question: str, count: int) -> bool:
    """Return whether the request of a question lists `count` different things."""
    requests = REQUESTED_THINGS.finditer(find_request(question))
    return any(count_things(request[1]) == count for request in requests)


def count_things(text: str) -> int:
    """Return how many things a request lists: 3 for "the mean, median, and mode of the data".

    It is 1 if the request asks for the values of one thing, such as roots.
    """
    *beginning, last = re.split(r",? and ", FORMULA.sub("$", text), maxsplit=1)
    phrases = [phrase for part in beginning for phrase in part.split(", ")]
    if VERB_START.match(last) or any(map(UNORDERED_THING.search, phrases)):
        return 1
    # "The value of $a$ and $b$" are two things, but "the intersections of $y=x$ and $y=1$" are one.
    for phrase in phrases:
        preposition = PREPOSITION.search(phrase)
        if not preposition or SAME_MEASURE.search(phrase):
            continue
        is_parallel = not preposition[1] or PREPOSITION.search(last)
        if not (ARTICLE.match(last) and is_parallel):
            return 1
    return len(phrases) + 1
