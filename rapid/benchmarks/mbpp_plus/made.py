"""Generates programming tasks from a seed, about the numbers in a list or the words in a text.

A function consists of three clauses: it filters the elements, changes each element, and computes a
result. Most clauses have a common mistake: a comparison that is off by one, a forgotten empty list,
a missing change. The base inputs are ordinary ones; the plus inputs reveal the mistakes.
"""

import random
from typing import Any, NamedTuple

from rapid.benchmarks.base import Exercise
from rapid.benchmarks.mbpp_plus.record import CodeProblem


class Clause(NamedTuple):
    """A part of a function, with its description and a version that has a mistake."""

    words: str  # in the description of the task
    name: str  # in the function's name; "" for nothing
    code: str
    mistake: str = ""  # the code with a common mistake; "" if there is none


class Domain(NamedTuple):
    """The subject of a task: the numbers in a list, or the words in a text."""

    elements: str  # in the description of the task
    argument: str  # name of the function's argument
    element: str  # name of the loop's variable
    iterable: str  # expression that is looped over


NUMBERS = Domain("numbers", "xs", "x", "xs")
WORDS = Domain("words", "text", "w", "text.split()")
LETTERS = "aeinrst"  # the words in texts consist of these


def _number_filters(k: int) -> list[Clause]:
    """Return filters of numbers by k. A mistake is a neighbouring or an unfinished comparison."""
    return [
        Clause(f"greater than {k}", "above", f"x > {k}", f"x >= {k}"),
        Clause(f"of at least {k}", "from", f"x >= {k}", f"x > {k}"),
        Clause(f"less than {k}", "below", f"x < {k}", f"x <= {k}"),
        Clause(f"of at most {k}", "to", f"x <= {k}", f"x < {k}"),
        Clause(f"divisible by {k}", "divisible", f"x % {k} == 0", f"x % {k}"),
    ]


def _word_filters(k: int) -> list[Clause]:
    """Return filters of words by the length k. Each mistake is a neighbouring comparison."""
    return [
        Clause(f"longer than {k}", "above", f"len(w) > {k}", f"len(w) >= {k}"),
        Clause(f"of length at least {k}", "from", f"len(w) >= {k}", f"len(w) > {k}"),
        Clause(f"shorter than {k}", "below", f"len(w) < {k}", f"len(w) <= {k}"),
        Clause(f"of length at most {k}", "to", f"len(w) <= {k}", f"len(w) < {k}"),
    ]


def _number_changes(m: int) -> list[Clause]:
    """Return changes of a number, some with the constant m. The mistake is not to change it."""
    return [
        Clause("the", "", "x"),
        Clause("the squares of the", "squares", "x * x", "x"),
        Clause(f"{m} times the", "times", f"{m} * x", "x"),
        Clause(f"{m} plus the", "plus", f"{m} + x", "x"),
    ]


WORD_CHANGES = [
    Clause("the", "", "w"),
    Clause("the lengths of the", "lengths", "len(w)", "w"),
    Clause("the reversed", "reversed", "w[::-1]", "w"),
    Clause("the upper case", "upper", "w.upper()", "w"),
]

# Results. In their code `found` is the list of the filtered and changed elements.
LIST = Clause("list", "list", "found", "sorted(found)")
COUNT = Clause("count, without repeats,", "count", "len(set(found))", "len(found)")
SORT = Clause("sort", "sort", "sorted(found)", "found")
DOWN = Clause("sort downwards", "down", "sorted(found, reverse=True)", "sorted(found)")

NUMBER_RESULTS = [
    Clause("find the sum of", "sum", "sum(found)", "sum(set(found))"),
    Clause("find the largest, or 0, of", "max", "max(found, default=0)", "max(found)"),
    Clause("find the smallest, or 0, of", "min", "min(found, default=0)", "min(found)"),
    *(COUNT, LIST, SORT, DOWN),
]

WORD_RESULTS = [LIST, COUNT, SORT, DOWN]


def draw(rng: random.Random, id: str) -> Exercise:
    """Draw an exercise whose problem has this id."""
    while True:
        about_numbers = rng.random() < 0.9  # there are far fewer different tasks about words
        if exercise := (_draw_numbers if about_numbers else _draw_words)(rng, id):
            return exercise


def _draw_numbers(rng: random.Random, id: str) -> Exercise | None:
    """Draw an exercise about numbers; None if `_build_exercise` rejects it."""
    k = rng.randint(2, 20)
    clauses = (
        rng.choice(_number_filters(k)),
        rng.choice(_number_changes(rng.randint(2, 9))),
        rng.choice(NUMBER_RESULTS),
    )

    def draw_numbers(size: int) -> list[int]:
        return [rng.choice([k, k * rng.randint(2, 4), rng.randint(1, 2 * k)]) for _ in range(size)]

    base = [draw_numbers(3) for _ in range(3)]
    # An empty list, and values at the bound k and beside it, where mistakes have an effect.
    plus = [[], [k], [k - 1], [k + 1], [k + 1, k, k - 1, k], [-1, 0, -k, 2 * k, -k]]
    plus += [draw_numbers(rng.randint(5, 12)) for _ in range(6)]
    return _build_exercise(id, NUMBERS, clauses, base, plus)


def _draw_words(rng: random.Random, id: str) -> Exercise | None:
    """Draw an exercise about words; None if `_build_exercise` rejects it."""
    k = rng.randint(2, 12)
    clauses = (rng.choice(_word_filters(k)), rng.choice(WORD_CHANGES), rng.choice(WORD_RESULTS))

    def draw_word(size: int) -> str:
        return "".join(rng.choices(LETTERS, k=size))

    def draw_text(size: int) -> str:
        return " ".join(draw_word(max(1, k + rng.randint(-1, 1))) for _ in range(size))

    base = [draw_text(2) for _ in range(3)]
    repeated = draw_text(2)
    plus = [
        "",
        draw_word(k),
        f"{repeated} {repeated}",
        f"{draw_word(k + 1)} {draw_word(k)} {draw_word(k - 1)}",
    ]
    plus += [draw_text(rng.randint(3, 8)) for _ in range(6)]
    return _build_exercise(id, WORDS, clauses, base, plus)


def _build_exercise(
    id: str, domain: Domain, clauses: tuple[Clause, ...], base: list, plus: list
) -> Exercise | None:
    """Build the exercise from its three clauses (filter, change, result) and its inputs.

    Returns None if a mistake has no effect on these inputs, or the example's output is empty or 0.
    """
    name = "_".join(clause.name for clause in reversed(clauses) if clause.name)
    source = _write_source(name, domain, [clause.code for clause in clauses])
    base_input, plus_input = [[value] for value in base], [[value] for value in plus]
    expected = _run_source(source, name, base_input + plus_input)
    mistakes = []
    for position, clause in enumerate(clauses):
        if clause.mistake:
            codes = [c.mistake if i == position else c.code for i, c in enumerate(clauses)]
            mistakes.append(_write_source(name, domain, codes))
    if any(_run_source(wrong, name, base_input + plus_input) == expected for wrong in mistakes):
        return None
    if not expected[0]:  # the first base input is the example in the prompt
        return None
    filter, change, result = clauses
    example = f"assert {name}({base[0]!r}) == {expected[0]!r}"
    task = f"Write a function to {result.words} {change.words} {domain.elements} {filter.words}."
    checks = zip(base, expected, strict=False)  # `expected` goes on with the plus inputs
    problem = CodeProblem(
        task_id=id,
        prompt=f'"""\n{task}\n{example}\n"""\n',
        entry_point=name,
        canonical_solution=source,
        base_input=base_input,
        plus_input=plus_input,
        assertion="".join(f"\nassert {name}({value!r}) == {out!r}" for value, out in checks) + "\n",
    )
    return Exercise(problem, source, tuple(mistakes))


def _write_source(name: str, domain: Domain, codes: list[str]) -> str:
    """Return the function's source from the code of its filter, change and result."""
    test, element, result = codes
    elements = f"[{element} for {domain.element} in {domain.iterable} if {test}]"
    return f"def {name}({domain.argument}):\n    found = {elements}\n    return {result}\n"


def _run_source(source: str, name: str, inputs: list[list]) -> list[Any]:
    """Run a function that this file has generated; return its outputs, or the types of exceptions.

    It is safe to run, because the source consists of the templates above. Completions of models are
    run only by `rapid.grading`, in its sandbox.
    """
    namespace: dict = {}
    exec(source, namespace)
    outputs = []
    for arguments in inputs:
        try:
            outputs.append(namespace[name](*arguments))
        except Exception as error:
            outputs.append(type(error))
    return outputs
