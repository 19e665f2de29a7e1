"""The outputs of a problem's reference solution, with which its completions are compared."""

import json
import threading
import time
from dataclasses import dataclass
from typing import Any, Protocol

from rapid.grading import limits
from rapid.grading.code import oracle
from rapid.grading.code.runner import encoding
from rapid.grading.code.sandbox import Sandbox, encode_job
from rapid.grading.grader import BadProblem, Problem


class Function(Problem, Protocol):
    """A function to write. Each input is the list of the call's positional arguments."""

    task_id: str  # EvalPlus restores the inputs of some tasks by it
    entry_point: str
    canonical_solution: str
    base_input: list[list[Any]]
    plus_input: list[list[Any]]
    atol: float


@dataclass(frozen=True)
class Reference:
    """A problem's inputs and expected outputs, in order, and the limits of a completion."""

    entry_point: str
    inputs: list[list[Any]]
    calls: str  # the inputs as JSON
    expected: list[Any]
    tolerances: list[float]
    line_limit: int  # bytes of one output
    value_limit: int  # numbers, strings and containers of one output
    seconds: float  # that the reference took, all inputs together

    def time_limit(self, timeout: float) -> float:
        """Return the seconds for a completion: more than `timeout` where the reference is slow."""
        seconds = min(limits.CODE_SLOWNESS * self.seconds, limits.CODE_SLOW_SECONDS)
        return max(timeout, seconds)


class References:
    """The references of a run, each found once, in the sandbox of whoever needs it first.

    Safe to share between threads; those that need the same one wait for it.
    """

    def __init__(self) -> None:
        self._references: dict[str, Reference] = {}
        self._locks: dict[str, threading.Lock] = {}

    def find(self, problem: Function, sandbox: Sandbox) -> Reference:
        """Return the reference of a problem; raise BadProblem as `run_reference` does."""
        with self._locks.setdefault(problem.digest, threading.Lock()):
            if problem.digest not in self._references:
                self._references[problem.digest] = run_reference(problem, sandbox)
            return self._references[problem.digest]


def run_reference(problem: Function, sandbox: Sandbox) -> Reference:
    """Run a problem's reference solution on all inputs, the base ones first.

    Raises:
        BadProblem: the problem has no inputs or its reference solution fails.
    """
    inputs = [
        *oracle.restore_inputs(problem.task_id, problem.base_input),
        *oracle.restore_inputs(problem.task_id, problem.plus_input),
    ]
    if not inputs:
        raise BadProblem(f"{problem.id} has no inputs")
    calls = json.dumps(encoding.encode(inputs))
    lines: list[bytes] = []

    def collect(line: bytes) -> bool:
        lines.append(line)
        return len(lines) < len(inputs)

    job = encode_job(
        problem.canonical_solution, problem.entry_point, calls, oracle.is_set(problem.entry_point)
    )
    began = time.monotonic()
    ending = sandbox.run(job, limits.REFERENCE_SECONDS, collect, limits.REFERENCE_LINE_BYTES)
    seconds = time.monotonic() - began
    answers = [json.loads(line) for line in lines]
    failed = next((answer["reason"] for answer in answers if "reason" in answer), None)
    if failed or len(answers) < len(inputs):
        raise BadProblem(f"{problem.id}: the reference solution {failed or ending}")
    expected = [encoding.decode(answer["output"]) for answer in answers]
    return Reference(
        entry_point=problem.entry_point,
        inputs=inputs,
        calls=calls,
        expected=expected,
        tolerances=oracle.tolerances(expected, problem.atol),
        # A right output is about as long as the expected one. To read and compare takes the
        # grader's own time and memory, so an output must have bounds.
        line_limit=limits.CODE_LINE_BYTES + 16 * max(map(len, lines)),
        value_limit=limits.CODE_VALUES + 2 * max(map(encoding.count_values, lines)),
        seconds=seconds,
    )
