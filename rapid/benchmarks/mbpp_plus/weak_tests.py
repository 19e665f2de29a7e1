"""Finds the MBPP+ tasks whose tests accept a program that ignores the task.

    python -m rapid.benchmarks.mbpp_plus.weak_tests MbppPlus.jsonl.gz

For each task, the command grades functions that return a constant (one of `CONSTANTS`, or the
output that the tests expect most often) or one of their arguments unchanged. It uses the pipeline's
grader and sandbox. It prints the tasks whose tests accept such a function, and what the function
returns. The exit status is 1 if a printed task is not in `MbppPlus.weak_problems`.

Reinforcement learning would find such a program before a correct one. So `rapid prepare` leaves
the tasks in `MbppPlus.weak_problems` out of training. They stay among the test problems, because
published results include them.
"""

import ast
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rapid.arguments import Parser
from rapid.artifacts.files import BadInput
from rapid.benchmarks.mbpp_plus import MbppPlus
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.published import read_problems
from rapid.grading import limits
from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.reference import Reference
from rapid.grading.pool import GraderPool
from rapid.grading.result_cache import ResultCache
from rapid.text import join_words

RELEASES = "https://github.com/evalplus/mbppplus_release/releases"
# Values that a program may return for all arguments.
CONSTANTS = ("None", "True", "False", "0", "1", "-1", "''", "[]", "()", "{}", "set()", "0.0")


def generate_programs(problem: CodeProblem, reference: Reference) -> Iterator[tuple[str, str]]:
    """Yield programs that ignore the task. Before each comes a description of what it returns."""
    for constant in dict.fromkeys([*CONSTANTS, *_find_most_frequent(reference.expected)]):
        yield constant, f"def {problem.entry_point}(*arguments):\n    return {constant}\n"
    for index in range(max(map(len, reference.inputs))):
        program = f"def {problem.entry_point}(*arguments):\n    return arguments[{index}]\n"
        yield f"argument {index + 1}", program


def _find_most_frequent(outputs: list[Any]) -> list[str]:
    """Return the most frequent output as a literal; several if they are equally frequent."""
    counts = Counter(filter(None, map(_to_literal, outputs)))
    return [literal for literal, count in counts.items() if count == max(counts.values())]


def _to_literal(output: Any) -> str | None:
    """Return an output as a Python literal, or None if it cannot be written as one."""
    try:
        ast.literal_eval(repr(output))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None  # not plain data, not finite, or more digits than Python converts
    return repr(output)


def find_weak_tasks(
    problems: list[CodeProblem], timeout: float, workers: int
) -> dict[str, list[str]]:
    """Return the tasks whose tests accept a program of `generate_programs`, and what it returns."""
    references = ResultCache(limits.MAX_REFERENCES)
    with (
        CodeGrader(timeout, references=references) as grader,
        GraderPool(
            MbppPlus.name, lambda: CodeGrader(timeout, references=references), workers
        ) as graders,
        ThreadPoolExecutor(workers) as threads,
    ):

        def find_accepted(problem: CodeProblem) -> list[str]:
            return [
                returned
                for returned, program in generate_programs(problem, grader.get_reference(problem))
                if graders.grade(problem, program).reward
            ]

        results = zip(problems, threads.map(find_accepted, problems), strict=True)
        return {problem.id: returned for problem, returned in results if returned}


def main(arguments: list[str] | None = None) -> int:
    """Print the weak tasks of a file and return the exit status."""
    command = "python -m rapid.benchmarks.mbpp_plus.weak_tests"
    parser = Parser(prog=command, description=__doc__.splitlines()[0])
    parser.add_argument("problems", type=Path, help="MBPP+ rows, .jsonl or .jsonl.gz")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds per program")
    args = parser.parse_args(arguments)
    benchmark = MbppPlus()
    try:
        problems = read_problems(args.problems, benchmark)
    except FileNotFoundError:
        parser.error(f"{args.problems} does not exist. Download it from EvalPlus: {RELEASES}")
    except BadInput as error:
        parser.error(str(error))
    try:
        weak = find_weak_tasks(list(problems.values()), args.timeout, os.cpu_count() or 1)
    except BadInput as error:  # a reference solution fails
        parser.error(str(error))
    for id, returned in weak.items():
        name = problems[id].entry_point
        print(f"{id}: the tests accept that {name} returns {join_words(returned, 'or')}")
    print(
        f"the tests of {len(weak)} of {len(problems)} tasks accept a function that returns a "
        "constant or an argument"
    )
    return 0 if weak.keys() <= benchmark.weak_problems.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
