"""Decides whether an answer is the known answer, by the rules in docs/benchmarks.md.

An answer is right if it has the value of the known answer, leaves nothing undone, and has the form
and the unit that the question asks for. What is outside the grammar is compared as LaTeX.
"""

import contextlib
import re

from forms import find_undone
from formula import Formula, kind, operands, parse_formula, value
from latex import Unreadable, clean_latex
from question import asked_base, asked_forms, asked_texts, base_of
from relations import is_same
from statements import SEQUENCES
from units import NO_UNIT, PERCENT, SHARES, asks_percent, extract_prose, is_unit_allowed, split_unit

NUMERAL = re.compile(r'\(?([0-9A-Z]*[0-9][0-9A-Z]*)\)? *_\{ *\(?"?(\w+)"?\)? *\}')
TEXT = re.compile(r'.*"(?!or"|and")[a-z]+".*|[A-Z]{2,}|[a-zA-Z]{4,}', re.DOTALL)


def compare(gold: str, answer: str, question: str) -> str:
    """Return the reason of the verdict on an answer: both are what stood in the box."""
    try:
        return "passed" if is_right(gold, answer, question) else "wrong_answer"
    except (Unreadable, RecursionError):
        return "unparsable"
    except MemoryError:
        return "memory"
    except Exception:
        return "crashed"


def is_right(gold: str, answer: str, question: str) -> bool:
    """Return whether an answer is right; raise Unreadable if it is outside the grammar."""
    is_list = "commas" in question
    gold, answer = clean_latex(gold, is_list), clean_latex(answer, is_list)
    if gold == answer:
        return True
    if parse_numeral(gold)[1] or parse_numeral(answer.rpartition("=")[2])[1]:
        return is_same_numeral(gold, answer, question)
    words = frozenset(extract_prose(question).split())
    gold_text, gold_unit = split_unit(gold, words)
    answer_text, answer_unit = split_unit(answer, words)
    if TEXT.fullmatch(gold_text):
        return normalize_spelling(gold) == normalize_spelling(answer)
    try:
        gold_formula = parse_formula(gold_text)
    except Unreadable:
        return normalize_spelling(gold) == normalize_spelling(answer)
    try:
        formula = parse_formula(answer_text)
    except Unreadable:
        formula = parse_formula(right_side(answer_text, question))
    if answer_unit and not is_number(formula):
        return False
    if {gold_unit, answer_unit} == {PERCENT, NO_UNIT}:
        return is_same_percent(gold_formula, formula, gold_unit == PERCENT, question)
    if not is_unit_allowed(gold_unit, answer_unit, question):
        return False
    return is_same(gold_formula, formula, question)


def right_side(text: str, question: str) -> str:
    """Return what follows `=` behind words, or behind a formula of the question that is not read.

    Raises:
        Unreadable: it does not follow either.
    """
    left_side, _, following = text.rpartition("=")
    is_asked_for = normalize_spelling(left_side) in map(normalize_spelling, asked_texts(question))
    if following and (is_asked_for or re.fullmatch(r'(?: *"[a-z]+")+ *', left_side)):
        return following
    raise Unreadable(text)


def normalize_spelling(text: str) -> str:
    """Return text without marks of words, spaces, a name before words, and the end of a sentence.

    The case of words does not count, that of letters does.
    """
    text = re.sub(r'^[a-zA-Z] *= *(?=")|["`]|(?<=[a-z"])\.', "", text)
    text = re.sub(r"(?<=\d) +(?=\d)", "_", text.strip()).replace(" ", "")
    return text.lower() if re.search("[a-zA-Z]{3,}", text) else text


def parse_numeral(text: str) -> tuple[str, int]:
    """Return the digits and the base of a number in a base, "" and 0 of other text."""
    match = NUMERAL.fullmatch(text.strip())
    with contextlib.suppress(ValueError):  # B2_3 is no number
        if match and base_of(match[2]) and int(match[1], base_of(match[2])) >= 0:
            return match[1].lstrip("0") or "0", base_of(match[2])
    return "", 0


def is_same_numeral(gold: str, answer: str, question: str) -> bool:
    """Compare digits in a base: 1101001_2 is not 105. A base may be left out, 10 is usual."""
    *sides, last = map(str.strip, answer.split("="))
    digits, base = parse_numeral(gold) if parse_numeral(gold)[1] else (gold, asked_base(question))
    answer, answer_base = parse_numeral(last) if parse_numeral(last)[1] else (last, base)
    sides = [side for side in sides if not re.fullmatch("[a-zA-Z]", side)]
    return (answer, answer_base) == (digits, base) and all(
        parse_numeral(side)[1] and int(*parse_numeral(side)) == int(digits, base) for side in sides
    )


def is_same_percent(expected: Formula, answer: Formula, is_gold: bool, question: str) -> bool:
    """Compare where one is a percentage: 30 where the question asks for percent, else 0.3."""
    if asks_percent(question):
        return is_same(expected, answer, question)
    percentage, number = (expected, answer) if is_gold else (answer, expected)
    if asked_forms(question) or value(number).is_Integer or not SHARES.search(question):
        return False
    return value(percentage) == 100 * value(number) and not find_undone(answer) - find_undone(
        expected
    )


def is_number(formula: Formula) -> bool:
    """Return whether a formula is a number, which has a unit: a list of numbers, x = a number."""
    if kind(formula) == "items":
        return all(map(is_number, operands(formula)))
    last = formula.children[-1] if kind(formula) == "chain" else formula
    return kind(last) not in SEQUENCES and not value(last).free_symbols
