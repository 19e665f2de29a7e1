"""Grades Python functions: runs them in the sandbox and compares outside of it.

The expected outputs are those of the problem's reference solution, run once in the same sandbox.
They never enter it again: a completion gets the inputs alone, and what it returns is plain data by
the time it is compared. Knowing no expected output, it can forge nothing but a wrong answer.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Self

from rapid.grading import oracle, reasons
from rapid.grading.base import BadProblem
from rapid.grading.inside import wire
from rapid.grading.sandbox import ENDED, FLOODED, STOPPED, TIMED_OUT, Sandbox, encode_job
from rapid.records import CodeProblem, Verdict

REFERENCE_SECONDS = 60.0  # a reference solution is trusted to end, not to be fast
REFERENCE_LINE_LIMIT = 64_000_000  # bytes of one expected output
LINE_ALLOWANCE = 65_536  # bytes of one output, beyond a multiple of the longest expected one

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]|\blambda\b", re.MULTILINE)


def extract_code(completion: str) -> str:
    """The program in a completion.

    With fenced blocks: the last one that defines something, for what follows it is usually an
    example of its use; without a definition in any, the last one. A block that is never closed
    reaches to the end. Without a fence: the whole text. Extracting twice changes nothing.
    """
    blocks = _FENCE.findall(completion)
    if not blocks:
        return completion
    return next((block for block in reversed(blocks) if _DEFINITION.search(block)), blocks[-1])


class CodeGrader:
    """Grades completions of `CodeProblem`s. A context manager; threads that share it take turns.

    Args:
        timeout: wall-clock seconds for one completion, all its inputs together.
        memory_mb: address space of one completion, 1e6 bytes.
        layer: the walls to use (`sandbox.LAYERS`); None for the strongest that works here.
    """

    def __init__(self, timeout: float, memory_mb: int = 512, layer: str | None = None):
        self.timeout = timeout
        self._sandbox = Sandbox(memory_mb, layer)
        self._references: dict[str, _Reference] = {}

    def __enter__(self) -> Self:
        """Start the sandbox, which logs the walls that stand.

        Raises:
            SandboxError: none can be put up here.
        """
        self._sandbox.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._sandbox.__exit__(*error)

    def describe_walls(self) -> str:
        """The walls that stand around a completion, in words."""
        return self._sandbox.describe_walls()

    def grade(self, problem: CodeProblem, completion: str) -> Verdict:
        """Grade a program, or a text with one in a fenced block (see `extract_code`).

        Inputs run in order, the base ones first, until an output is wrong.

        Raises:
            BadProblem: the problem has no inputs or its reference solution fails.
        """
        code = extract_code(completion)
        if not code.strip():
            return reasons.verdict(reasons.NO_ANSWER)
        reference = self._reference(problem)
        answers = _Comparison(reference)
        job = encode_job(code, problem.entry_point, reference.calls)
        ending = self._sandbox.run(job, self.timeout, answers.receive, reference.line_limit)
        return reasons.verdict(answers.reason(ending))

    def _reference(self, problem: CodeProblem) -> "_Reference":
        """The reference solution's outputs, from its first run."""
        if problem.id not in self._references:
            self._references[problem.id] = self._run_reference(problem)
        return self._references[problem.id]

    def _run_reference(self, problem: CodeProblem) -> "_Reference":
        inputs = [
            *oracle.restore_inputs(problem.task_id, problem.base_input),
            *oracle.restore_inputs(problem.task_id, problem.plus_input),
        ]
        if not inputs:
            raise BadProblem(f"{problem.id} has no inputs")
        calls = json.dumps(wire.encode(inputs))
        lines: list[bytes] = []

        def collect(line: bytes) -> bool:
            lines.append(line)
            return len(lines) < len(inputs)

        job = encode_job(problem.canonical_solution, problem.entry_point, calls)
        ending = self._sandbox.run(job, REFERENCE_SECONDS, collect, REFERENCE_LINE_LIMIT)
        answers = [json.loads(line) for line in lines]
        failed = next((answer["reason"] for answer in answers if "reason" in answer), None)
        if failed or len(answers) < len(inputs):
            raise BadProblem(f"{problem.id}: the reference solution {failed or ending}")
        outputs = [wire.decode(answer["output"]) for answer in answers]
        expected = [oracle.expectation(problem.entry_point, output) for output in outputs]
        return _Reference(
            entry_point=problem.entry_point,
            inputs=inputs,
            calls=calls,
            expected=expected,
            tolerances=oracle.tolerances(expected, problem.atol),
            # A right output is about as long as the expected one. Comparing may take quadratic
            # time on hostile data, so its size must have a bound.
            line_limit=LINE_ALLOWANCE + 16 * max(map(len, lines)),
        )


@dataclass(frozen=True)
class _Reference:
    """What a problem's completions are compared with: an item per input in each list."""

    entry_point: str
    inputs: list[list[Any]]
    calls: str  # the inputs as JSON
    expected: list[Any]
    tolerances: list[float]
    line_limit: int  # bytes


@dataclass
class _Comparison:
    """Compares a completion's outputs as they come in. They may be anything."""

    reference: _Reference
    right: int = 0  # outputs so far, all of them right
    failure: str | None = field(default=None)

    def receive(self, line: bytes) -> bool:
        """Take one line from the child. Returns whether more should follow."""
        try:
            answer = json.loads(line)
            if "output" not in answer:
                said = answer["reason"]
                self.failure = said if said in _CHILD_REASONS else reasons.CRASHED
                return False
            output = wire.decode(answer["output"])
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            self.failure = reasons.CRASHED  # not a line that our runner writes
            return False
        if not self._agrees(output):
            self.failure = reasons.WRONG_ANSWER
            return False
        self.right += 1
        return self.right < len(self.reference.expected)

    def _agrees(self, output: Any) -> bool:
        reference, index = self.reference, self.right
        return oracle.agrees(
            reference.entry_point,
            reference.inputs[index],
            output,
            reference.expected[index],
            reference.tolerances[index],
        )

    def reason(self, ending: str) -> str:
        """The verdict's reason, given how the job ended."""
        if ending == STOPPED:
            return self.failure or reasons.PASSED
        return _ENDINGS[ending]


# A child may say why it failed. That it passed is not for it to say.
_CHILD_REASONS = reasons.REASONS - {reasons.PASSED, reasons.TIMEOUT}
_ENDINGS = {
    ENDED: reasons.CRASHED,
    TIMED_OUT: reasons.TIMEOUT,
    FLOODED: reasons.WRONG_ANSWER,
}
