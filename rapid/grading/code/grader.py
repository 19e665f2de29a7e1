"""Grades Python functions: runs them in the sandbox and compares outputs outside of it.

The expected outputs are those of the problem's reference solution, run once in the same sandbox.
They never enter it again: a completion gets the inputs alone, and what it returns is plain data by
the time it is compared. Knowing no expected output, it can forge nothing but a wrong answer.
"""

import json
from dataclasses import dataclass
from typing import Self

from rapid.grading import limits, verdicts
from rapid.grading.code import oracle
from rapid.grading.code.reference import Function, Reference, References
from rapid.grading.code.runner import encoding
from rapid.grading.code.sandbox import ENDED, FLOODED, STOPPED, TIMED_OUT, Sandbox, encode_job
from rapid.grading.verdicts import Verdict


class CodeGrader:
    """Grades completions of `Function`s. A context manager; threads that share it take turns.

    Args:
        timeout: wall-clock seconds for one completion, all its inputs together; more where the
            reference solution is slow (`Reference.time_limit`).
        memory_mb: address space of one completion, 1e6 bytes.
        layer: the walls to use (`sandbox.LAYERS`); None for the strongest that works here.
        references: shared with other graders, so that each is run once.
        unsafe: whether to grade where no layer of walls works.
    """

    def __init__(
        self,
        timeout: float,
        memory_mb: int = limits.CODE_MB,
        layer: str | None = None,
        references: References | None = None,
        unsafe: bool = False,
    ):
        self.timeout = timeout
        self._sandbox = Sandbox(memory_mb, layer, unsafe=unsafe)
        self._references = references or References()

    def __enter__(self) -> Self:
        """Start the sandbox, which logs its walls; raise SandboxError where there can be none."""
        self._sandbox.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._sandbox.__exit__(*error)

    def walls(self) -> str:
        """Return the walls that stand around a completion, in words."""
        return self._sandbox.walls()

    def prepare(self, problem: Function) -> None:
        """Find the reference solution's outputs; raise BadProblem as `grade` does."""
        self._references.find(problem, self._sandbox)

    def grade(self, problem: Function, completion: str) -> Verdict:
        """Grade the program in a completion (`runner.program` finds it, in the sandbox).

        Inputs run in order, the base ones first, until an output is wrong.

        Raises:
            BadProblem: the problem has no inputs or its reference solution fails.
            GraderDied: the sandbox's runner died.
        """
        if not completion.strip():
            return verdicts.verdict(verdicts.NO_ANSWER)
        reference = self._references.find(problem, self._sandbox)
        answers = _Comparison(reference)
        name = problem.entry_point
        as_sets = oracle.is_set(name)
        job = encode_job(completion, name, reference.calls, as_sets, is_completion=True)
        seconds = reference.time_limit(self.timeout)
        ending = self._sandbox.run(job, seconds, answers.receive, reference.line_limit)
        return verdicts.verdict(answers.reason(ending))


@dataclass
class _Comparison:
    """Compares a completion's outputs as they come in. They may be anything."""

    reference: Reference
    right: int = 0  # outputs so far, all of them right
    failure: str | None = None

    def receive(self, line: bytes) -> bool:
        """Take one line from the child. Return whether more should follow."""
        if encoding.count_values(line) > self.reference.value_limit:
            self.failure = verdicts.WRONG_ANSWER
            return False
        try:
            answer = json.loads(line)
            if "output" not in answer:
                reason = answer["reason"]
                self.failure = reason if reason in _CHILD_REASONS else verdicts.CRASHED
                return False
            output = encoding.decode(answer["output"])
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            self.failure = verdicts.CRASHED  # not a line that our runner writes
            return False
        reference, index = self.reference, self.right
        call, expected = reference.inputs[index], reference.expected[index]
        atol = reference.tolerances[index]
        if not oracle.agrees(reference.entry_point, call, output, expected, atol):
            self.failure = verdicts.WRONG_ANSWER
            return False
        self.right += 1
        return self.right < len(reference.expected)

    def reason(self, ending: str) -> str:
        """Return the verdict's reason, given how the job ended."""
        return (self.failure or verdicts.PASSED) if ending == STOPPED else _ENDINGS[ending]


# A child may say why it failed. That it passed, or was not graded, is not for it to say.
_CHILD_REASONS = verdicts.select_reasons("code", but={verdicts.PASSED, verdicts.TIMEOUT})
_ENDINGS = {ENDED: verdicts.CRASHED, TIMED_OUT: verdicts.TIMEOUT, FLOODED: verdicts.WRONG_ANSWER}
