"""Made questions of school mathematics, answered in written steps.

Two-digit sums and differences are written down and done in columns, units first, as a child does:
each step is a fact about single digits. A solution may slip in one place: a carry, the operation, a
last step that is left out.
"""

import random
from collections.abc import Callable
from math import gcd
from typing import NamedTuple

from rapid.benchmarks.base import Exercise
from rapid.benchmarks.math.record import MathProblem

CARRY, OPERATION, UNFINISHED = "carry", "operation", "unfinished"
SLIPS = (CARRY, OPERATION, UNFINISHED)

NAMES = ("Ann", "Ben", "Eve", "Sam")
THINGS = ("pens", "books", "eggs", "cards")
COLORS = ("red", "blue", "green", "white")
UNKNOWNS = ("x", "y", "n", "t")

Solve = Callable[[str], str]


class Question(NamedTuple):
    """A question, its answer, and `solve`, which writes a solution with a slip ("" for none)."""

    subject: str
    level: int
    text: str
    answer: str
    solve: Solve


def draw(rng: random.Random, id: str) -> Exercise:
    """Draw a question."""
    question = rng.choice([_bought, _sold, _packed, _chance, _equation])(rng)
    correct = question.solve("")
    wrong = (question.solve(slip) for slip in SLIPS)
    right = _box("", question.answer)  # some slips happen to end well
    mistakes = tuple(dict.fromkeys(text for text in wrong if not text.endswith(right)))
    problem = MathProblem(
        unique_id=id,
        problem=question.text,
        answer=question.answer,
        solution=correct,
        subject=question.subject,
        level=question.level,
    )
    return Exercise(problem, correct, mistakes)


def _bought(rng: random.Random) -> Question:
    a, b = _number(rng), _number(rng)
    name, things = rng.choice(NAMES), rng.choice(THINGS)

    def solve(slip: str) -> str:
        if slip == OPERATION:
            return _box(*_subtract(max(a, b), min(a, b)))
        return _box(*_add(a, b, slip == CARRY))

    text = f"{name} has {a} {things} and buys {b}. How many {things} does {name} have now?"
    return Question("Prealgebra", 1, text, str(a + b), solve)


def _sold(rng: random.Random) -> Question:
    left, b = _number(rng), _number(rng)
    a = left + b
    name, things = rng.choice(NAMES), rng.choice(THINGS)

    def solve(slip: str) -> str:
        return _box(*(_add(a, b) if slip == OPERATION else _subtract(a, b, slip == CARRY)))

    text = f"{name} has {a} {things} and sells {b}. How many {things} does {name} have now?"
    return Question("Prealgebra", 1, text, str(left), solve)


def _packed(rng: random.Random) -> Question:
    a, b, c = rng.randint(2, 3), rng.randint(2, 5), _number(rng)
    name, things = rng.choice(NAMES), rng.choice(THINGS)

    def solve(slip: str) -> str:
        product = f"{a}*{b}={a * b}. "
        if slip == UNFINISHED:
            return _box(product, str(a * b))
        steps, total = _add(a * b, c, slip == CARRY)
        return _box(product + steps, total)

    text = f"{name} has {a} boxes of {b} {things} and {c} more. How many {things} does {name} have?"
    return Question("Prealgebra", 2, text, str(a * b + c), solve)


def _chance(rng: random.Random) -> Question:
    one, other = rng.sample(COLORS, 2)
    a, b = 2, 2
    while gcd(a, b) > 1:  # until the fraction is in lowest terms
        a, b = _number(rng), _number(rng)

    def solve(slip: str) -> str:
        if slip == OPERATION:
            return _box("", rf"\frac{{{a}}}{{{b}}}")
        steps, total = _add(a, b, slip == CARRY)
        return _box(steps, rf"\frac{{{a}}}{{{total}}}")

    text = f"Of {a} {one} and {b} {other} balls one is drawn. What is the probability of {one}?"
    answer = rf"\frac{{{a}}}{{{a + b}}}"
    return Question("Counting & Probability", 3, text, answer, solve)


def _equation(rng: random.Random) -> Question:
    m, x, c = rng.randint(2, 3), rng.randint(2, 5), _number(rng)
    d = m * x + c
    unknown = rng.choice(UNKNOWNS)

    def solve(slip: str) -> str:
        steps, rest = _subtract(d, c)
        if slip == UNFINISHED:
            return _box(steps, rest)
        return _box(f"{steps}{rest}/{m}={x}. ", str(x))

    text = f"Solve ${m}{unknown}+{c}={d}$ for ${unknown}$."
    return Question("Algebra", 3, text, str(x), solve)


def _number(rng: random.Random) -> int:
    """Draw a two-digit number. Few digits make few facts to learn, and about as many carries."""
    return 10 * rng.randint(1, 4) + rng.randint(3, 7)


def _add(a: int, b: int, slip: bool = False) -> tuple[str, str]:
    """Return the steps of a + b < 100 in columns, and the sum; a slip makes the carry wrong."""
    units = a % 10 + b % 10
    carry = (units >= 10) != slip
    tens = a // 10 + b // 10 + carry
    steps = f"{a}+{b}: {a % 10}+{b % 10}={units}, "
    steps += f"{a // 10}+{b // 10}{'+1' * carry}={tens}. "
    return steps, str(10 * tens + units % 10)


def _subtract(a: int, b: int, slip: bool = False) -> tuple[str, str]:
    """Return the steps of a - b > 0 in columns, and the difference; a slip forgets to borrow."""
    minuend = a % 10 + 10 * (a % 10 < b % 10)
    units = minuend - b % 10
    borrow = (minuend >= 10) != slip
    tens = a // 10 - b // 10 - borrow
    steps = f"{a}-{b}: {minuend}-{b % 10}={units}, "
    steps += f"{a // 10}-{b // 10}{'-1' * borrow}={tens}. "
    return steps, str(10 * tens + units)


def _box(steps: str, answer: str) -> str:
    return rf"{steps}The answer is $\boxed{{{answer}}}$."
