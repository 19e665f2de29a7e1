"""Check the graders on the published benchmarks, whose files are not part of this project.

    python -m tests.published --mbpp-plus MbppPlus.jsonl.gz --math train.jsonl

MBPP+: every reference solution must pass, and fail after a small change that changes its outputs.
MATH: every solution must be rewarded for its own problem, and answers of other problems must not be.
The command prints counts and each exception to these rules. The exit status is 1 if a reference
solution fails, if a changed one passes with other outputs that EvalPlus does not accept, or if less
than 99.5 % of MATH's solutions are rewarded.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from evalplus.eval import _special_oracle as special

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Problem
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.published import read_problems
from rapid.grading.code.oracle import restore_inputs
from rapid.grading.code.runner import encoding
from rapid.grading.code.sandbox import Sandbox, encode_job
from rapid.resources.leases import list_usable_cores
from rapid.stages.grade import Submission, grade
from tests.mutants import find_mutants

Pairs = list[tuple[str, str]]  # ids of problems, and completions
# Functions for which EvalPlus also accepts other outputs than that of the reference solution.
LENIENT = {
    *special.MBPP_OUTPUT_SET_EQ_TASKS,
    *special.MBPP_OUTPUT_NOT_NONE_TASKS,
    *("are_equivalent", "sum_div", "surface_Area", "digit_distance_nums"),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.published", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--mbpp-plus", type=Path)
    parser.add_argument("--math", type=Path)
    parser.add_argument("--changes", type=int, default=1, help="changes of each reference solution")
    parser.add_argument(
        "--answers", type=int, default=20, help="answers of other problems for each problem"
    )
    parser.add_argument("--timeout", type=float, default=10.0)
    args = parser.parse_args()
    if not (args.mbpp_plus or args.math):
        parser.error(
            "give --mbpp-plus FILE, --math FILE or both; docs/benchmarks.md has their source"
        )
    all_pass = True
    if args.mbpp_plus:
        problems = read_problems(args.mbpp_plus, BENCHMARKS["mbpp_plus"])
        all_pass &= check_references(problems, args.timeout)
        all_pass &= check_changed_references(problems, args.changes, args.timeout)
    if args.math:
        problems = read_problems(args.math, BENCHMARKS["math"])
        all_pass &= check_solutions(problems, args.timeout)
        check_other_answers(problems, args.answers, args.timeout)
    return 0 if all_pass else 1


def grade_pairs(
    benchmark: str, problems: dict[str, Problem], pairs: Pairs, timeout, title: str
) -> list:
    """Return verdicts on completions; print how many are rewarded, and the seconds of grading."""
    start_time = time.monotonic()
    submissions = [Submission(id=id, completion=text) for id, text in pairs]
    workers = len(list_usable_cores())
    task = BENCHMARKS[benchmark]
    verdicts = grade(task, problems, submissions, workers=workers, timeout=timeout).verdicts
    seconds = time.monotonic() - start_time
    rewarded = sum(verdict.reward or 0 for verdict in verdicts)  # the reward may be None
    print(f"{title}: {rewarded:.0f} of {len(pairs)} rewarded, {seconds:.0f} s")
    return verdicts


def check_references(problems: dict[str, CodeProblem], timeout: float) -> bool:
    """Grade the reference solutions, and return whether all pass."""
    pairs = [
        (id, f"```python\n{problem.canonical_solution}\n```") for id, problem in problems.items()
    ]
    verdicts = grade_pairs("mbpp_plus", problems, pairs, timeout, "MBPP+ references")
    for (id, _), verdict in zip(pairs, verdicts, strict=True):
        if not verdict.reward:
            print(f"  {id}: {verdict.reason}")
    return all(verdict.reward for verdict in verdicts)


def check_changed_references(problems: dict[str, CodeProblem], count: int, timeout: float) -> bool:
    """Grade reference solutions that are changed in one place at random, as in `tests.mutants`.

    Returns:
        Whether no changed solution passes with other outputs, unless EvalPlus allows them.
    """
    rng, pairs = random.Random(0), []
    for id, problem in problems.items():
        source = problem.canonical_solution
        programs = [mutant.apply_to(source) for mutant in find_mutants(problem.task_id, source)]
        pairs += [(id, text) for text in rng.sample(programs, min(count, len(programs)))]
    verdicts = grade_pairs(
        "mbpp_plus", problems, pairs, timeout, "MBPP+ references with one change"
    )
    print(f"  {dict(Counter(verdict.reason for verdict in verdicts))}")
    wrong_passes = 0
    with Sandbox() as sandbox:
        for (id, program), verdict in zip(pairs, verdicts, strict=True):
            problem = problems[id]
            if not verdict.reward or are_equal(
                list_outputs(program, problem, sandbox),
                list_outputs(problem.canonical_solution, problem, sandbox),
            ):
                continue
            is_lenient = problem.entry_point in LENIENT
            wrong_passes += not is_lenient
            print(f"  {id} passes with other outputs{' (EvalPlus allows them)' * is_lenient}")
    print(f"  of those that pass, {wrong_passes} should not")
    return not wrong_passes


def list_outputs(program: str, problem: CodeProblem, sandbox: Sandbox) -> list:
    """Return a program's output for each input, up to an input at which the program stops."""
    parts = (problem.base_input, problem.plus_input)
    inputs = [value for part in parts for value in restore_inputs(problem.task_id, part)]
    lines: list[bytes] = []

    def collect(line: bytes) -> bool:
        lines.append(line)
        return len(lines) < len(inputs)

    job = encode_job(program, problem.entry_point, json.dumps(encoding.encode(inputs)))
    sandbox.run(job, 300, collect, 256_000_000)
    return [
        encoding.decode(answer["output"]) for answer in map(json.loads, lines) if "output" in answer
    ]


def are_equal(outputs: list, expected: list) -> bool:
    """Return whether there are as many outputs as expected, and all are equal or nearly equal numbers."""
    return len(outputs) == len(expected) and all(map(are_nearly_equal, outputs, expected))


def are_nearly_equal(output: object, expected: object) -> bool:
    try:
        return bool(output == expected or np.allclose(output, expected, rtol=1e-7, atol=1e-4))
    except (TypeError, ValueError):
        return False


def check_solutions(problems: dict[str, MathProblem], timeout: float) -> bool:
    """Grade MATH's solutions, and return whether at least 99.5 % are rewarded."""
    pairs = [(id, problem.solution) for id, problem in problems.items()]
    verdicts = grade_pairs("math", problems, pairs, timeout, "MATH solutions")
    for (id, text), verdict in zip(pairs, verdicts, strict=True):
        if not verdict.reward:
            print(f"  {id}: {verdict.reason}: ...{text[-80:]!r}, answer {problems[id].answer!r}")
    return sum(verdict.reward or 0 for verdict in verdicts) >= 0.995 * len(pairs)


def check_other_answers(problems: dict[str, MathProblem], count: int, timeout: float) -> None:
    """Grade answers of other problems, and print those that are rewarded."""
    rng = random.Random(0)
    answers = {problem.answer for problem in problems.values()}
    pairs = [
        (id, rf"\boxed{{{answer}}}")
        for id, problem in problems.items()
        for answer in rng.sample(sorted(answers - {problem.answer}), min(count, len(answers) - 1))
    ]
    verdicts = grade_pairs("math", problems, pairs, timeout, "MATH, answers of other problems")
    for (id, completion), verdict in zip(pairs, verdicts, strict=True):
        if verdict.reward:
            print(f"  {completion} for {problems[id].answer!r}")


if __name__ == "__main__":
    sys.exit(main())
