"""Decides whether two mathematical answers are the same, and why not.

math_verify's `verify` decides whether two expressions are the same. Two things stand before it:

- `forms`: an answer that leaves work to be done is none, though it is equal.
- What the reader of formulas does not hear is compared here: units, bases, primes, dots, braces.
"""

import contextlib
import functools
import re
from collections.abc import Iterator
from math import floor, log10
from typing import NamedTuple

from forms import is_worked_out
from math_verify import verify
from math_verify.grader import should_treat_as_complex
from reading import Unreadable, normalize, read
from sympy import Basic, Eq, FiniteSet, Interval, MatrixBase, Tuple, Union, ordered, solve
from sympy.core.function import AppliedUndef


def compare(gold: str, answer: str, question: str) -> str:
    """Return the reason of the verdict on an answer: both are what stood in the box."""
    try:
        return "passed" if is_same(gold, answer, question) else "wrong_answer"
    except (Unreadable, RecursionError):
        return "unparsable"
    except MemoryError:
        return "memory"
    except Exception:
        return "crashed"


def is_same(gold: str, answer: str, question: str) -> bool:
    """Return whether an answer says what the known one says; raise Unreadable if none."""
    if len(UNHEARD.findall(gold)) != len(UNHEARD.findall(answer)):
        return False
    expected, given = take_apart(gold), take_apart(answer)
    if expected.base or given.base:
        return is_same_numeral(expected, given, question)
    is_formula = not (WORD.fullmatch(expected.text) or TEXT.fullmatch(expected.text))
    if is_formula and not is_worked_out(expected.text, given.text, question):
        return False
    if (expected.unit == PERCENT) != (given.unit == PERCENT):
        return is_same_share(expected, given, question)
    return is_unit_allowed(expected.unit, given.unit, question) and is_equal(
        expected.text, given.text
    )


# --- What an answer says that the reader of formulas does not hear ---

SPACING = re.compile(r"\\(?:left|right)(?![a-zA-Z])|\\[,!;: ]|[\s{}~]")
UNHEARD = re.compile(r"['\"]|\\prime|\\[lcv]?dots[a-z]?(?![a-zA-Z])|\.\.\.")

# Measures and their other names. Another unit, 5 apples, has to be the known answer's or asked for.
MEASURES = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre",
    "km": "kilometer kilometre", "in": "inch inches", "ft": "foot feet", "yd": "yard", "mi": "mile",
    "mg": "milligram", "g": "gram", "kg": "kilogram", "oz": "ounce", "lb": "pound",
    "ml": "milliliter millilitre", "l": "liter litre", "gal": "gallon", "qt": "quart", "pt": "pint",
    "s": "sec second", "min": "minute", "h": "hr hour", "day": "", "week": "", "month": "",
    "yr": "year", "am": "", "pm": "", "degree": "deg circ °", "radian": "rad",
    "percent": "% pct percentage", "dollar": "$ usd", "cent": "¢", "unit": "",
    "^2": "2 square squared sq", "^3": "3 cubic cubed cu", "/": "per",
}  # fmt: skip
PERCENT = frozenset({"percent"})
NAMES = {name: unit for unit, names in MEASURES.items() for name in (unit, *names.split())}
SHORT = "|".join(name for name in NAMES if name.isalpha() and len(name) > 1)
WORDS = r"\\(?:text[a-z]*|mbox|mathrm)\s*\{(?:[a-zA-Z .-]|\\?%|\\ )+\}(?:\s*\^\s*(?:\d|\{\d\}))?"
UNIT = re.compile(
    rf"\s*(?:{WORDS}(?:\s*/\s*{WORDS})?|\\?%|\^\s*\{{?\s*\\(?:circ|degree)\s*\}}?|°"
    rf"|(?<=[\d}}\s])(?:{SHORT})s?(?:\s*\^\s*\d)?|(?<=\s)[a-z]{{3,}}(?:\s+[a-z]{{3,}}){{0,2}})\s*$"
)
UNFINISHED = re.compile(r"(?:^|(?<!\\)[-=<>+*/,;:(])\s*$")
CONNECTIVE = re.compile(r"\b(?:or|and|not|to|but|if|than)\b")
NUMBER = re.compile(r"\s*\\(?:text|math)[a-z]*\s*\{\s*(-?[\d.,]+)\s*\}\s*")
NUMERAL = re.compile(r"(?:[a-zA-Z]=)?\(?([A-Z]*[0-9][0-9A-Z]*)\)?_([1-9][0-9]?)")


class Answer(NamedTuple):
    """Normalized content of a box, without its unit; the digits of a number in a base."""

    text: str
    unit: frozenset[str] = frozenset()
    base: int = 0


@functools.lru_cache(maxsize=4096)
def take_apart(text: str) -> Answer:
    if number := NUMBER.fullmatch(text):
        text = number[1]
    plain = SPACING.sub("", text).replace("\\text", "").replace(",", "")
    if numeral := NUMERAL.fullmatch(plain):
        digits, base = numeral[1], int(numeral[2])
        with contextlib.suppress(ValueError):  # B2_3 is no number
            int(digits, base)
            return Answer(digits.lstrip("0") or "0", base=base)
    unit = frozenset({"dollar"} if "\\$" in text else ())
    text = text.replace("\\$", "").strip()
    behind = UNIT.search(text)
    number = text[: behind.start()] if behind else ""
    if not UNFINISHED.search(number) and not CONNECTIVE.search(behind.group()):
        text, unit = number, name_unit(behind.group()) or unit
    return Answer(normalize(text), unit)


def name_unit(words: str) -> frozenset[str]:
    """Return {cm, ^2} for square centimeters and for `\\text{ cm}^2`; other words as stems."""
    words = re.sub(r"\\(?:text[a-z]*|mbox|mathrm)|\.", "", words.lower()).replace("mph", "mi/h")
    words = re.findall(r"[a-z]+|[^a-z\s{}^\\-]", words)
    return frozenset(
        NAMES.get(word) or NAMES.get(word.removesuffix("s")) or stem(word) for word in words
    )


def stem(word: str) -> str:
    """Return the same for box and boxes, for piece and pieces."""
    return word.rstrip("es")


def is_unit_allowed(expected: frozenset[str], given: frozenset[str], question: str) -> bool:
    """Return whether an answer in units `given` may stand for one in units `expected`.

    A unit may be left out, or named where the known answer has none. One that is not in `MEASURES`
    has to stand in the question.
    """
    if not given or given == expected:
        return True
    measures = expected & MEASURES.keys()
    if unknown := given - MEASURES.keys():
        asked = set(map(stem, re.findall("[a-z]+", question.lower())))
        return not measures and unknown <= asked
    if "unit" in given:
        return not measures or given - {"unit"} == expected & {"^2", "^3", "/"}
    return not measures


def is_same_numeral(expected: Answer, given: Answer, question: str) -> bool:
    """Compare digits where one has a base: 1101001_2 is not 105, though they are equal."""
    if expected.base:
        told = given.base in (0, expected.base)
    else:
        told = given.base == 10 or "base" in question.lower()
    return told and expected.text == given.text


def is_same_share(expected: Answer, given: Answer, question: str) -> bool:
    """Compare when one is a percentage: 30% is 0.3, and 30 where the question is about percent."""
    if {expected.unit, given.unit} != {PERCENT, frozenset()}:
        return False
    hundredth = "\\frac{{{}}}{{100}}".format
    if expected.unit:
        return any(is_equal(gold, given.text) for gold in (expected.text, hundredth(expected.text)))
    if re.search(rf"(?<![\d.]){re.escape(given.text)}\s*(?:\\?%|percent)", question):
        return False  # nothing was converted
    if is_equal(expected.text, hundredth(given.text)):
        return True
    asked = re.search("(?i)percent|%", question) is not None
    return asked and is_equal(expected.text, given.text)


# --- Whether two formulas are the same ---

WORD = re.compile("[A-Z]{2,}|[a-zA-Z]{4,}")
TEXT = re.compile(r"\\text\s*\{[^{}]*\}")
COLLECTION = (FiniteSet, Tuple, Interval)
same = functools.partial(verify, timeout_seconds=None, numeric_precision=30)  # ours is the alarm


def is_equal(gold: str, answer: str) -> bool:
    """Return whether two normalized formulas are the same, or raise Unreadable as `is_same`."""
    if gold == answer:
        return True
    if ":" in gold and ":" in answer:
        return False  # 8:30 is a quotient to the reader
    if WORD.fullmatch(gold):  # and this a product
        return gold.lower() == re.sub(r"\\text|[{}\s]", "", answer).lower()
    real = not (should_treat_as_complex(gold) or should_treat_as_complex(answer))
    cases = mixes_cases(gold) or mixes_cases(answer)
    expected, given = read(gold, real, cases), read(answer, real, cases)
    if expected is None:
        return False
    if given is None:
        raise Unreadable(answer)
    if is_false(given) or (not is_merged(given) and is_merged(expected)):
        return False
    return is_same_tree(expected, given, "\\{" in gold, "\\{" in answer)


def mixes_cases(formula: str) -> bool:
    letters = set(re.sub(r"\\[a-zA-Z]+", "", formula))
    return any(letter.isupper() and letter.lower() in letters for letter in letters)


def is_false(tree: Basic | MatrixBase) -> bool:
    """Return whether it says that 7 = 5: `verify` looks at the right side alone."""
    numeric = (e for e in tree.atoms(Eq) if not (e.free_symbols or e.atoms(AppliedUndef)))
    return not all(same(equation.lhs, equation.rhs) for equation in numeric)


def is_merged(tree: Basic | MatrixBase) -> bool:
    """Return whether no union is of more sets than it takes: [0,5] and [3,7] are [0,7]."""

    def count(sets: Basic) -> int:
        return sum(map(count, sets.args)) if isinstance(sets, Union) else 1

    return all(count(union) == count(Union(*union.args)) for union in tree.atoms(Union))


def is_same_tree(gold: Basic, given: Basic, gold_braces: bool, braces: bool) -> bool:
    """Return `verify` of two expressions, by which order, repetition and precision count."""
    if isinstance(gold, COLLECTION) and isinstance(given, COLLECTION):
        named = {part.lhs for part in elements(gold) if isinstance(part, Eq)}
        if len(named) > 1 and not given.atoms(Eq):  # x = 1, y = 2 is not 2, 1
            gold, given = in_order(gold), in_order(given)
        if isinstance(gold, FiniteSet) != isinstance(given, FiniteSet):
            if gold_braces if isinstance(gold, FiniteSet) else braces:
                return False  # {1, 2} is not (1, 2); a list without either may be both
            gold, given = in_order(gold), in_order(given)
        elif len(gold.atoms(FiniteSet)) != len(given.atoms(FiniteSet)):
            return False  # {1, 2}, {3, 4} is not (1, 2), (3, 4)
        elif any(len(elements(tree)) > len(tree.args) for tree in (gold, given)):  # 2, 2, 3
            gold, given = (Tuple(*ordered(elements(tree))) for tree in (gold, given))
    if not same(gold, given, float_rounding=decimals(gold)):
        return False
    if isinstance(gold, Eq) and isinstance(given, Eq) and is_without_solution(gold):
        return same(gold.lhs - gold.rhs, given.lhs - given.rhs)
    return True


def elements(tree: Basic) -> tuple:
    """Return the elements of a list or set as it is written."""
    return tuple(getattr(tree, "_unsorted_args", tree.args))


def in_order(tree: Basic) -> Basic:
    """Return a pair that was read as an open interval, or a list, as a tuple."""
    if isinstance(tree, Interval):
        return Tuple(tree.start, tree.end) if tree.left_open and tree.right_open else tree
    return Tuple(*elements(tree))


def is_without_solution(equation: Eq) -> bool:
    """Return whether an equation has no solution; `verify` takes all such for the same."""
    try:
        return not solve(equation)
    except Exception:  # nor did `verify` solve it
        return False


def decimals(gold: Basic | MatrixBase) -> int:
    """Return how many decimal places have to be right: six digits, or all if the gold ends."""
    numbers = list(values(gold))
    smallest = min((abs(float(number)) for number in numbers if number != 0), default=1.0)
    return (12 if all(map(ends, numbers)) else 6) + max(0, -1 - floor(log10(smallest)))


def values(tree: Basic | MatrixBase) -> Iterator[Basic]:
    """Return the finite numbers that an answer consists of."""
    if isinstance(tree, (*COLLECTION, MatrixBase)):
        for part in tree.flat() if isinstance(tree, MatrixBase) else tree.args:
            yield from values(part)
    elif tree.is_number and tree.is_finite and tree.is_real:
        yield tree


def ends(number: Basic) -> bool:
    """Return whether it has finitely many decimal places."""
    return number.is_Float or (number.is_Rational and 10 ** number.q.bit_length() % number.q == 0)
