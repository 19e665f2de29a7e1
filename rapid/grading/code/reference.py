"""Computes a problem's expected outputs: runs its reference solution, once, in the sandbox."""

import json
import time
from dataclasses import dataclass
from typing import Any, Protocol

from rapid.grading import limits
from rapid.grading.code import oracle
from rapid.grading.code.runner import encoding
from rapid.grading.code.sandbox import TIMED_OUT, Sandbox, encode_job
from rapid.grading.grader import BadProblem, Problem


class SlowReference(BadProblem):
    """The reference solution did not end within `limits.REFERENCE_SECONDS`."""


class FunctionProblem(Problem, Protocol):
    """A problem whose completion is a Python function.

    `base_input` and `plus_input` are lists of calls, and a call is the list of its positional
    arguments. `atol` is the absolute tolerance of floats, 0 if the problem sets none.
    """

    task_id: str  # decides how EvalPlus restores tuples and sets from JSON
    entry_point: str  # name of the function
    canonical_solution: str  # the reference solution, a program
    base_input: list[list[Any]]
    plus_input: list[list[Any]]
    atol: float


@dataclass(frozen=True)
class Reference:
    """A problem's inputs and expected outputs, in the same order, and limits for completions."""

    entry_point: str
    inputs: list[list[Any]]
    inputs_json: str  # the inputs, as JSON text (`runner.encoding`)
    expected: list[Any]
    tolerances: list[float]  # absolute, one per expected output
    line_limit: int  # maximum bytes of one output
    value_limit: int  # maximum number of values (numbers, strings, containers) in one output
    seconds: float  # wall-clock time of the reference solution on all inputs

    def compute_time_limit(self, timeout: float) -> float:
        """Return the wall-clock seconds that a completion may take.

        This is the larger of `timeout` and `CODE_SLOWNESS` times the reference solution's time. The
        latter is at most `CODE_SLOW_SECONDS`.
        """
        seconds = min(limits.CODE_SLOWNESS * self.seconds, limits.CODE_SLOW_SECONDS)
        return max(timeout, seconds)


def run_reference(problem: FunctionProblem, sandbox: Sandbox) -> Reference:
    """Run a problem's reference solution on all inputs, `base_input` first.

    Raises:
        BadProblem: the problem has no inputs or its reference solution fails. SlowReference, a
            subclass: the reference solution does not end.
    """
    inputs = [
        *oracle.restore_inputs(problem.task_id, problem.base_input),
        *oracle.restore_inputs(problem.task_id, problem.plus_input),
    ]
    if not inputs:
        raise BadProblem(f"{problem.id} has no inputs")
    inputs_json = json.dumps(encoding.encode(inputs))
    lines: list[bytes] = []

    def collect(line: bytes) -> bool:
        """Keep a line of output; return whether to read another one."""
        lines.append(line)
        return len(lines) < len(inputs)

    name = problem.entry_point
    as_sets = oracle.is_compared_as_set(name)  # EvalPlus lists these functions by name
    job = encode_job(problem.canonical_solution, name, inputs_json, as_sets)
    start = time.monotonic()
    ending = sandbox.run(job, limits.REFERENCE_SECONDS, collect, limits.REFERENCE_LINE_BYTES)
    seconds = time.monotonic() - start
    answers = [json.loads(line) for line in lines]
    failure = next((answer["reason"] for answer in answers if "reason" in answer), None)
    if failure or len(answers) < len(inputs):
        is_slow = ending == TIMED_OUT and not failure
        error_class = SlowReference if is_slow else BadProblem
        raise error_class(f"{problem.id}: the reference solution failed: {failure or ending}")
    expected = [encoding.decode(answer["output"]) for answer in answers]
    return Reference(
        entry_point=name,
        inputs=inputs,
        inputs_json=inputs_json,
        expected=expected,
        tolerances=oracle.compute_tolerances(expected, problem.atol),
        # An output is read and compared outside the sandbox, in the grader's time and memory, so
        # its size is limited. A right output is about as long as the expected one: the factors 16
        # and 2 leave ample room.
        line_limit=limits.CODE_LINE_BYTES + 16 * max(map(len, lines)),
        value_limit=limits.CODE_VALUES + 2 * max(map(encoding.count_values, lines)),
        seconds=seconds,
    )
