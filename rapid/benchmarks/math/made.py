"""Generates questions of school mathematics from a seed, with solutions in written steps.

Sums and differences of two-digit numbers are computed in columns, units first, so that each step is
a fact about single digits. A slip is a mistake in a solution: a wrong carry, the wrong operation,
or a missing last step.
"""

import random
from collections.abc import Callable
from math import gcd
from typing import NamedTuple

from rapid.benchmarks.base import Exercise
from rapid.benchmarks.math.record import MathProblem

CARRY, OPERATION, UNFINISHED = "carry", "operation", "unfinished"  # kinds of slips
SLIPS = (CARRY, OPERATION, UNFINISHED)

NAMES = ("Ann", "Ben", "Eve", "Sam")
OBJECTS = ("pens", "books", "eggs", "cards")
COLORS = ("red", "blue", "green", "white")
UNKNOWNS = ("x", "y", "n", "t")

# Takes a kind of slip, or "" for none, and returns a solution with this slip. If the slip cannot
# occur in the question's solution, the solution is correct.
SolutionWriter = Callable[[str], str]


class GeneratedQuestion(NamedTuple):
    """A question, its answer, and a function that writes its solutions."""

    subject: str  # as in MATH
    level: int  # difficulty, as in MATH: 1 to 5
    text: str
    answer: str
    write_solution: SolutionWriter


def draw(rng: random.Random, id: str) -> Exercise:
    """Draw an exercise whose problem has this id."""
    question = rng.choice([_draw_purchase, _draw_sale, _draw_boxes, _draw_chance, _draw_equation])(
        rng
    )
    correct = question.write_solution("")
    solutions_with_slip = (question.write_solution(slip) for slip in SLIPS)
    correct_ending = _write_answer("", question.answer)  # a slip may have no effect on the answer
    mistakes = tuple(
        dict.fromkeys(text for text in solutions_with_slip if not text.endswith(correct_ending))
    )
    problem = MathProblem(
        unique_id=id,
        problem=question.text,
        answer=question.answer,
        solution=correct,
        subject=question.subject,
        level=question.level,
    )
    return Exercise(problem, correct, mistakes)


def _draw_purchase(rng: random.Random) -> GeneratedQuestion:
    a, b = _draw_number(rng), _draw_number(rng)
    name, objects = rng.choice(NAMES), rng.choice(OBJECTS)

    def write_solution(slip: str) -> str:
        if slip == OPERATION:
            return _write_answer(*_write_subtraction(max(a, b), min(a, b)))
        return _write_answer(*_write_addition(a, b, slip == CARRY))

    text = f"{name} has {a} {objects} and buys {b}. How many {objects} does {name} have now?"
    return GeneratedQuestion("Prealgebra", 1, text, str(a + b), write_solution)


def _draw_sale(rng: random.Random) -> GeneratedQuestion:
    remaining, b = _draw_number(rng), _draw_number(rng)
    a = remaining + b
    name, objects = rng.choice(NAMES), rng.choice(OBJECTS)

    def write_solution(slip: str) -> str:
        return _write_answer(
            *(
                _write_addition(a, b)
                if slip == OPERATION
                else _write_subtraction(a, b, slip == CARRY)
            )
        )

    text = f"{name} has {a} {objects} and sells {b}. How many {objects} does {name} have now?"
    return GeneratedQuestion("Prealgebra", 1, text, str(remaining), write_solution)


def _draw_boxes(rng: random.Random) -> GeneratedQuestion:
    a, b, c = rng.randint(2, 3), rng.randint(2, 5), _draw_number(rng)
    name, objects = rng.choice(NAMES), rng.choice(OBJECTS)

    def write_solution(slip: str) -> str:
        product = f"{a}*{b}={a * b}. "
        if slip == UNFINISHED:
            return _write_answer(product, str(a * b))
        steps, total = _write_addition(a * b, c, slip == CARRY)
        return _write_answer(product + steps, total)

    text = (
        f"{name} has {a} boxes of {b} {objects} and {c} more. How many {objects} does {name} have?"
    )
    return GeneratedQuestion("Prealgebra", 2, text, str(a * b + c), write_solution)


def _draw_chance(rng: random.Random) -> GeneratedQuestion:
    first_color, second_color = rng.sample(COLORS, 2)
    a, b = 2, 2
    while gcd(a, b) > 1:  # until the fraction is in lowest terms
        a, b = _draw_number(rng), _draw_number(rng)

    def write_solution(slip: str) -> str:
        if slip == OPERATION:
            return _write_answer("", rf"\frac{{{a}}}{{{b}}}")
        steps, total = _write_addition(a, b, slip == CARRY)
        return _write_answer(steps, rf"\frac{{{a}}}{{{total}}}")

    text = (
        f"Of {a} {first_color} and {b} {second_color} balls one is drawn. "
        f"What is the probability of {first_color}?"
    )
    answer = rf"\frac{{{a}}}{{{a + b}}}"
    return GeneratedQuestion("Counting & Probability", 3, text, answer, write_solution)


def _draw_equation(rng: random.Random) -> GeneratedQuestion:
    m, x, c = rng.randint(2, 3), rng.randint(2, 5), _draw_number(rng)
    d = m * x + c
    unknown = rng.choice(UNKNOWNS)

    def write_solution(slip: str) -> str:
        steps, rest = _write_subtraction(d, c)
        if slip == UNFINISHED:
            return _write_answer(steps, rest)
        return _write_answer(f"{steps}{rest}/{m}={x}. ", str(x))

    text = f"Solve ${m}{unknown}+{c}={d}$ for ${unknown}$."
    return GeneratedQuestion("Algebra", 3, text, str(x), write_solution)


def _draw_number(rng: random.Random) -> int:
    """Draw a number with tens of 1 to 4 and units of 3 to 7.

    Few digits occur, so that a small model has few facts to learn.
    """
    return 10 * rng.randint(1, 4) + rng.randint(3, 7)


def _write_addition(a: int, b: int, slip: bool = False) -> tuple[str, str]:
    """Return the steps of a + b in columns, for numbers below 100, and the sum."""
    units = a % 10 + b % 10
    carry = (units >= 10) != slip  # a slip inverts the carry
    tens = a // 10 + b // 10 + carry
    steps = f"{a}+{b}: {a % 10}+{b % 10}={units}, "
    steps += f"{a // 10}+{b // 10}{'+1' * carry}={tens}. "
    return steps, str(10 * tens + units % 10)


def _write_subtraction(a: int, b: int, slip: bool = False) -> tuple[str, str]:
    """Return the steps of a - b > 0 in columns, for numbers below 100, and the difference."""
    minuend = a % 10 + 10 * (a % 10 < b % 10)  # the units of a, plus ten if a ten is borrowed
    units = minuend - b % 10
    borrow = (minuend >= 10) != slip  # a slip inverts the borrow
    tens = a // 10 - b // 10 - borrow
    steps = f"{a}-{b}: {minuend}-{b % 10}={units}, "
    steps += f"{a // 10}-{b // 10}{'-1' * borrow}={tens}. "
    return steps, str(10 * tens + units)


def _write_answer(steps: str, answer: str) -> str:
    """Return a solution that ends in the boxed answer."""
    return rf"{steps}The answer is $\boxed{{{answer}}}$."
