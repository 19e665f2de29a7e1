"""The graders held against the real benchmarks, whose files are not part of this project.

    python -m tests.published --mbpp-plus MbppPlus.jsonl.gz --math train.jsonl

MBPP+: every reference solution passes; with one place of it changed it fails wherever that changes
what a test sees, which is found out by comparing the two programs' outputs as they are. MATH: every
solution is rewarded for its own problem, and no other problem's answer is.
Prints figures and every exception. The exit status is 1 where a reference solution fails, a changed
one gets a verdict that its outputs contradict, or under 99.5 % of the solutions are rewarded.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from evalplus.eval import _special_oracle as special

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Problem
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.published import read_problems
from rapid.grading.code.grader import MEMORY_MB
from rapid.grading.code.oracle import restore_inputs
from rapid.grading.code.runner import encoding
from rapid.grading.code.sandbox import Sandbox, encode_job
from rapid.machine.lease import usable_cores
from rapid.stages.grade import Submission, grade
from tests.mutants import mutants

# Functions of which EvalPlus accepts more than the reference's output.
LENIENT = {
    *special.MBPP_OUTPUT_SET_EQ_TASKS,
    *special.MBPP_OUTPUT_NOT_NONE_TASKS,
    *("are_equivalent", "sum_div", "surface_Area", "digit_distance_nums"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbpp-plus", type=Path)
    parser.add_argument("--math", type=Path)
    parser.add_argument("--changes", type=int, default=1, help="of each reference solution")
    parser.add_argument(
        "--answers", type=int, default=20, help="of other problems, for each problem"
    )
    parser.add_argument("--timeout", type=float, default=10.0)
    args = parser.parse_args()
    right = True
    if args.mbpp_plus:
        problems = read_problems(args.mbpp_plus, BENCHMARKS["mbpp_plus"])
        right &= references_pass(problems, args.timeout)
        right &= changed_references_fail(problems, args.changes, args.timeout)
    if args.math:
        problems = read_problems(args.math, BENCHMARKS["math"])
        right &= solutions_pass(problems, args.timeout)
        other_answers_fail(problems, args.answers, args.timeout)
    return 0 if right else 1


def graded(benchmark: str, problems: dict[str, Problem], pairs: list[tuple[str, str]], timeout):
    """Verdicts of (id, completion) pairs, and the seconds that they took."""
    began = time.monotonic()
    submissions = [Submission(id=id, completion=text) for id, text in pairs]
    workers = len(usable_cores())
    found = grade(BENCHMARKS[benchmark], problems, submissions, workers=workers, timeout=timeout)
    return found, time.monotonic() - began


def references_pass(problems: dict[str, CodeProblem], timeout: float) -> bool:
    pairs = [
        (id, f"```python\n{problem.canonical_solution}\n```") for id, problem in problems.items()
    ]
    found, seconds = graded("mbpp_plus", problems, pairs, timeout)
    passed = sum(verdict.reward for verdict in found)
    print(f"MBPP+ references: {passed:.0f} of {len(pairs)} pass, {seconds:.0f} s")
    for (id, _), verdict in zip(pairs, found, strict=True):
        if not verdict.reward:
            print(f"  {id}: {verdict.reason}")
    return passed == len(pairs)


def changed_references_fail(problems: dict[str, CodeProblem], count: int, timeout: float) -> bool:
    rng = random.Random(0)
    changed = {id: list(changes(problem)) for id, problem in problems.items()}
    pairs = [
        (id, program)
        for id, programs in changed.items()
        for program in rng.sample(programs, min(count, len(programs)))
    ]
    found, seconds = graded("mbpp_plus", problems, pairs, timeout)
    passed = [pair for pair, verdict in zip(pairs, found, strict=True) if verdict.reward]
    reasons = dict(Counter(verdict.reason for verdict in found))
    print(f"MBPP+ references with one change: {len(pairs)}, {reasons}, {seconds:.0f} s")
    odd = 0
    with Sandbox(memory_mb=MEMORY_MB) as sandbox:
        for id, program in passed:
            problem = problems[id]
            expected = outputs(problem.canonical_solution, problem, sandbox)
            if not same(outputs(program, problem, sandbox), expected):
                lenient = problem.entry_point in LENIENT
                odd += not lenient
                print(f"  {id} passes with other outputs{' (EvalPlus allows them)' * lenient}")
    print(f"  of the {len(passed)} that pass, {odd} should not")
    return not odd


def outputs(program: str, problem: CodeProblem, sandbox: Sandbox) -> list:
    """What the program returns for each input; shorter where it stops."""
    inputs = [
        *restore_inputs(problem.task_id, problem.base_input),
        *restore_inputs(problem.task_id, problem.plus_input),
    ]
    lines: list[bytes] = []

    def collect(line: bytes) -> bool:
        lines.append(line)
        return len(lines) < len(inputs)

    job = encode_job(program, problem.entry_point, json.dumps(encoding.encode(inputs)))
    sandbox.run(job, 300, collect, 256_000_000)
    return [encoding.decode(a["output"]) for a in map(json.loads, lines) if "output" in a]


def same(found: list, expected: list) -> bool:
    """Equal in number, and one by one equal or, where they are numbers, nearly so."""
    return len(found) == len(expected) and all(map(nearly_equal, found, expected))


def nearly_equal(one: object, other: object) -> bool:
    try:
        return bool(one == other or np.allclose(one, other, rtol=1e-7, atol=1e-4))
    except (TypeError, ValueError):
        return False


def changes(problem: CodeProblem) -> Iterator[str]:
    """The reference solution with one place changed, in every way that tests.mutants has."""
    for one in mutants(problem.task_id, problem.canonical_solution):
        yield one.of(problem.canonical_solution)


def solutions_pass(problems: dict[str, MathProblem], timeout: float) -> bool:
    pairs = [(id, problem.solution) for id, problem in problems.items()]
    found, seconds = graded("math", problems, pairs, timeout)
    passed = sum(verdict.reward for verdict in found)
    share = passed / len(pairs)
    print(f"MATH solutions: {passed:.0f} of {len(pairs)} rewarded ({share:.2%}), {seconds:.0f} s")
    for (id, text), verdict in zip(pairs, found, strict=True):
        if not verdict.reward:
            print(f"  {id}: {verdict.reason}: ...{text[-80:]!r}, answer {problems[id].answer!r}")
    return share >= 0.995


def other_answers_fail(problems: dict[str, MathProblem], count: int, timeout: float) -> None:
    rng = random.Random(0)
    answers = {problem.answer for problem in problems.values()}
    pairs = [
        (id, rf"\boxed{{{answer}}}")
        for id, problem in problems.items()
        for answer in rng.sample(sorted(answers - {problem.answer}), min(count, len(answers) - 1))
    ]
    found, seconds = graded("math", problems, pairs, timeout)
    rewarded = [pair for pair, verdict in zip(pairs, found, strict=True) if verdict.reward]
    print(
        f"MATH, answers of other problems: {len(rewarded)} of {len(pairs)} rewarded, {seconds:.0f} s"
    )
    for id, completion in rewarded:
        print(f"  {completion} for {problems[id].answer!r}")


if __name__ == "__main__":
    sys.exit(main())
