"""The outputs of a problem's reference solution, with which its completions are compared."""

import json
import threading
import time
from dataclasses import dataclass
from typing import Any, Protocol

from rapid.grading.code import oracle
from rapid.grading.code.runner import encoding
from rapid.grading.code.sandbox import Sandbox, encode_job
from rapid.grading.grader import BadProblem, Problem

REFERENCE_SECONDS = 300.0  # a reference solution is trusted to end, not to be fast
REFERENCE_LINE_LIMIT = 256_000_000  # bytes of one expected output
# One output of a completion, beyond a multiple of the longest expected one:
LINE_ALLOWANCE = 65_536  # bytes
VALUE_ALLOWANCE = 10_000  # numbers, strings and containers in it
SLOWNESS = 4.0  # a completion may take so many times as long as the reference, as in EvalPlus,
LONGEST = 60.0  # but not over so many seconds because of that, as in EvalPlus


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
        return max(timeout, min(SLOWNESS * self.seconds, LONGEST))


class References:
    """The references of a run, each found once, in the sandbox of whoever needs it first.

    Safe to share between threads; those that need the same one wait for it.
    """

    def __init__(self) -> None:
        self._found: dict[str, Reference] = {}
        self._locks: dict[str, threading.Lock] = {}

    def find(self, problem: Function, sandbox: Sandbox) -> Reference:
        """Return the reference of a problem; raise BadProblem as `run_reference` does."""
        with self._locks.setdefault(problem.digest, threading.Lock()):
            if problem.digest not in self._found:
                self._found[problem.digest] = run_reference(problem, sandbox)
            return self._found[problem.digest]


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
    ending = sandbox.run(job, REFERENCE_SECONDS, collect, REFERENCE_LINE_LIMIT)
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
        line_limit=LINE_ALLOWANCE + 16 * max(map(len, lines)),
        value_limit=VALUE_ALLOWANCE + 2 * max(map(encoding.count_values, lines)),
        seconds=seconds,
    )
