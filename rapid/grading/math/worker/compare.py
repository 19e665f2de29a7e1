"""Decides whether an answer equals the known answer, by the rules in docs/benchmarks.md.

An answer is right if it has the value of the known answer, leaves no sum or fraction that could be
computed, and has the form and the unit that the question asks for.
Answers that `grammar.lark` cannot parse are compared as LaTeX text.

In this folder, `gold` is the known answer, and a "unit" is one of measurement, or names things that
are counted (units.py).
"""

import contextlib
import re

from asked_quantity import asks_percent, asks_share
from asked_units import find_asked_units, is_unit_allowed, list_words
from expressions import find_functions
from forms import find_unevaluated
from formula import EVERY_LETTER, Formula, kind, operands, parse_formula, tokens, value
from latex import Unreadable, clean_latex
from quantities import drop_converted_sides, list_stated_shares
from question import (
    clean_question,
    find_asked_base,
    find_asked_forms,
    find_asked_formulas,
    find_options,
    parse_base,
    read_formulas,
)
from relations import is_same, read_solutions
from statements import COLLECTION_KINDS, find_variables
from units import DEGREES, NO_UNIT, PERCENT, split_unit

# A number in a base, such as 1101_2, (1A)_{16} or 11 (base 2).
NUMERAL = re.compile(
    r'\(?([0-9A-Z]*[0-9][0-9A-Z]*)\)? *(?:_\{|(?=\(? *"base"))'
    r' *\(? *(?:"base" *)?"?(\w+)"? *\)? *\}?'
)
# The modulus at the end of 3 \pmod{5} or 3 (mod 5).
MODULUS = re.compile(r'\(? *\\?"?[pb]?mod(?:ulo)?"? *\{? *([1-9]\d*) *\}? *\)?$')
# An answer with words in quotes (except "or" and "and", which join values), or of at least two
# capitals or four letters, is compared as text.
TEXT = re.compile(r'.*"(?!or"|and")[a-z]+".*|[A-Z]{2,}|[a-zA-Z]{4,}', re.DOTALL)
LIST_SEPARATOR = re.compile('[,;]|"(?:and|or)"')
# The letter of an option, and the text after it.
CHOICE = re.compile(r"\(?([A-F])[.:)]* *(.*)")
# Words, or a probability, on the left side of an equation.
LABEL = re.compile(r' *(?:((?:(?:"[a-z]+"|\\gcd) *)+)(?:\([^()]*\)|[A-Z]+)?|\\?Pr? *\([^()]*\)) *=')
# Words that may stand there although the question does not have them.
QUANTITY_WORDS = (
    "the of is answer result value number total amount sum min max area perimeter circumference "
    "volume length width height distance time speed age cost price profit change money average "
    "probability gcd lcm"
)
QUANTITY_WORDS = frozenset(QUANTITY_WORDS.split(" "))


def compare(gold: str, answer: str, question: str) -> str:
    """Return the reason of the verdict on an answer.

    Args:
        gold: the known answer, as LaTeX.
        answer: the content of the completion's \\boxed{}, as LaTeX.
        question: the text of the problem.
    """
    try:
        return "passed" if is_right(gold, answer, question) else "wrong_answer"
    except (Unreadable, RecursionError):
        return "unparsable"
    except MemoryError:
        return "memory"
    except Exception:
        return "crashed"


def is_right(gold: str, answer: str, question: str) -> bool:
    """Return whether an answer is right. Raise Unreadable if it cannot be parsed."""
    question = clean_question(question)
    is_list = "commas" in question  # as in "separated by commas": then 1,234 is two numbers
    gold = clean_latex(gold, is_list)
    # If the known answer is a list, 1,234 is two numbers, unless 1234 is an element of it.
    is_list = is_list or LIST_SEPARATOR.search(gold) is not None
    answer = clean_latex(answer, is_list, frozenset(re.findall(r"\d+", gold)))
    if gold == answer:
        return True
    gold, answer = drop_modulus(gold, question), drop_modulus(answer, question)
    answer = read_choice(answer, gold, question)
    *sides, last = map(parse_numeral, answer.split("="))
    if parse_numeral(gold) or last or (any(sides) and gold.isdecimal()):
        return is_same_numeral(gold, answer, question)
    question_words = list_words(question)
    names = frozenset(part for part in read_formulas(question) if kind(part) == "NAME")
    answer = drop_converted_sides(answer, question_words, names, asks_percent(question))
    gold_text, gold_unit = split_unit(gold, question_words, names)
    answer_text, answer_unit = split_unit(answer, question_words, names)
    if TEXT.fullmatch(gold_text) and (
        gold_text in question_words
        or is_same_text(gold, answer)
        or not is_product_of_names(gold_text, question)
    ):
        return is_same_text(gold, answer)
    try:
        functions = find_functions(parse_formula(gold_text, EVERY_LETTER), question)
        gold_formula = parse_formula(gold_text, functions)
    except Unreadable:
        return is_same_text(gold, answer)
    try:
        answer_formula = parse_formula(answer_text, functions)
    except Unreadable:
        answer_formula = parse_formula(get_right_side(answer_text, question), functions)
    if answer_unit and not can_have_unit(answer_formula):
        return False
    asks_degrees = DEGREES in find_asked_units(question).measures
    has_pi = "\\pi" in tokens(answer_formula)
    if (gold_unit, answer_unit) == (NO_UNIT, DEGREES) and has_pi and not asks_degrees:
        return False  # a multiple of \pi without a unit is in radians
    if {gold_unit, answer_unit} == {PERCENT, NO_UNIT}:
        return is_same_percent(gold_formula, answer_formula, gold_unit == PERCENT, question)
    if not is_unit_allowed(gold_unit, answer_unit, question):
        return False
    return is_same(gold_formula, answer_formula, question)


def is_product_of_names(text: str, question: str) -> bool:
    """Return whether a text is letters, and all of them stand in formulas of the question.

    Capitals only, such as ABCD, are never a product: they name a figure, whose order counts.
    """
    names = set().union(*map(find_variables, read_formulas(question)))
    return text.isalpha() and not text.isupper() and {*text} <= names


def read_choice(answer: str, gold: str, question: str) -> str:
    """Return the option that an answer such as (B), or (B) with the option's own text, chooses.

    It is the letter if the known answer is a letter, and else the text. An answer that chooses no
    option of the question is returned unchanged.
    """
    choice = CHOICE.fullmatch(answer)
    option = find_options(question).get(choice[1]) if choice else None
    if not choice or not option:
        return answer
    if normalize_spelling(choice[2]) not in ("", normalize_spelling(option)):
        return answer
    return choice[1] if re.fullmatch(r"\(?[A-F]\)?", gold) else option


def get_right_side(text: str, question: str) -> str:
    """Return what follows the left side of an equation that cannot be parsed as a whole.

    Raise Unreadable unless the left side is words of the question or QUANTITY_WORDS, as in
    "area" = 5 or "area"(ABC) = 2+3 = 5, a probability, or a formula that the question asks for.
    """
    label = LABEL.match(text)
    question_words = re.findall("[a-z]+", question.lower())
    if label and {*re.findall("[a-z]+", label[1] or "")} <= QUANTITY_WORDS.union(question_words):
        return text[label.end() :]
    left_side, _, right_side = text.rpartition("=")
    if right_side and normalize_spelling(left_side) in map(
        normalize_spelling, find_asked_formulas(question)
    ):
        return right_side
    raise Unreadable(text)


def drop_modulus(text: str, question: str) -> str:
    """Return the number in 3 \\pmod{5} or 2^3 \\equiv 3 \\pmod{5}.

    The question must name the modulus, and each side before the number must be a letter or
    congruent to it. Other text is returned unchanged.
    """
    modulus = MODULUS.search(text)
    if not modulus or not re.search(rf"(?:mod|modulo|by)\W*{modulus[1]}\b", question):
        return text
    *sides, number = text[: modulus.start()].strip().split("\\equiv")
    is_congruence = all(
        re.fullmatch(" *[a-zA-Z] *", side)
        or (value(parse_formula(side)) - value(parse_formula(number))) % int(modulus[1]) == 0
        for side in sides
    )
    return number.strip() if is_congruence else text


def is_same_text(gold: str, answer: str) -> bool:
    """Return whether two texts are the same. Upper case counts unless one of them is words."""
    spellings = [normalize_spelling(gold), normalize_spelling(answer)]
    if re.fullmatch("[a-z]{3,}", gold) or any(
        re.fullmatch('(?:"[a-z]+" *)+', text) for text in (gold, answer)
    ):
        spellings = [spelling.lower() for spelling in spellings]
    return spellings[0] == spellings[1]


def normalize_spelling(text: str) -> str:
    """Return a text in the spelling in which texts are compared.

    Quotes around words, spaces, an article or a name before words (as in x = "red") and a full stop
    after a word are removed. Between digits, and between a command and a letter, a space becomes
    "_", so that 1 2 is not 12. Words are in lower case; single letters and names such as ABC keep
    their case.
    """
    text = re.sub(
        r"(?<![\\a-zA-Z])(?=[a-zA-Z]{3})[a-zA-Z]+[a-z][a-zA-Z]*",
        lambda word: word[0].lower(),
        text,
    )
    text = re.sub(r'^(?:[a-zA-Z] *=|"the"|"an"|a) *(?=")|["`]|(?<=[a-z"])\.', "", text)
    text = re.sub(r"(?<=\d) +(?=\d)|(\\[a-zA-Z]+) +(?=[a-zA-Z])", r"\1_", text.strip())
    return text.replace(" ", "")


def parse_numeral(text: str) -> tuple[str, int] | None:
    """Return the digits and the base of a number such as 1101_2; None for other text."""
    match = NUMERAL.fullmatch(text.strip())
    with contextlib.suppress(ValueError):  # B2_3 is not a number: digits must be below the base
        if match and parse_base(match[2]) and int(match[1], parse_base(match[2])) >= 0:
            return match[1].lstrip("0") or "0", parse_base(match[2])
    return None


def is_same_numeral(gold: str, answer: str, question: str) -> bool:
    """Return whether two numbers have the same digits and base: 1101001_2 is not 105.

    A number without a base has the base that the question asks for, which is 10 by default.
    """
    *sides, last = map(str.strip, answer.split("="))
    gold_numeral = parse_numeral(gold) or (gold, find_asked_base(question))
    answer_numeral = parse_numeral(last) or (last, gold_numeral[1])
    if answer_numeral != gold_numeral:
        return False
    # In x = 69_16 = 1101001_2 the last side is the answer. Each other side must be a letter, or a
    # sum of numbers with bases that has the same value.
    numeral = parse_numeral("{}_{{{}}}".format(*gold_numeral))
    sums = [
        [*map(parse_numeral, side.split("+"))]
        for side in sides
        if not re.fullmatch("[a-zA-Z]", side)
    ]
    return all(
        numeral and all(terms) and sum(int(*term) for term in terms if term) == int(*numeral)
        for terms in sums
    )


def is_same_percent(
    gold: Formula, answer: Formula, is_gold_percentage: bool, question: str
) -> bool:
    """Return whether two answers are the same if one is a percentage and the other has no unit.

    If the question asks for percent, 30 is the same as 30%. Otherwise 0.3 is the same as 30%, if
    the question asks for a share such as a probability, and for no form. But a percentage that the
    question states, or states as a decimal, is no answer to "which fraction is 75%?".
    """
    if asks_percent(question):
        return is_same(gold, answer, question)
    if kind(answer) == "chain":
        return any(
            is_same_percent(gold, solution, is_gold_percentage, question)
            for solution in read_solutions(answer, gold, question)
        )
    percentage, number = (gold, answer) if is_gold_percentage else (answer, gold)
    # A share is between 0 and 1, so an integer without a unit is taken as a mistake.
    if find_asked_forms(question) or value(number).is_Integer or not asks_share(question):
        return False
    if not is_gold_percentage and value(percentage) / 100 in list_stated_shares(question):
        return False
    is_equal = value(percentage) == 100 * value(number)
    return is_equal and find_unevaluated(answer) <= find_unevaluated(gold)


def can_have_unit(formula: Formula) -> bool:
    """Return whether a formula can have a unit: numbers, lists and sets of them, and x = 5 can."""
    if kind(formula) in ("list", "set"):
        return all(map(can_have_unit, operands(formula)))
    last = formula.children[-1] if kind(formula) == "chain" else formula
    return kind(last) not in COLLECTION_KINDS and not value(last).free_symbols
