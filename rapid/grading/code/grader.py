"""Grades Python functions: runs them in the sandbox and compares outputs outside of it.

The expected outputs come from the problem's reference solution, which is run once in the same
sandbox. They stay in the grader: a completion gets the inputs only, and its outputs reach the
grader as plain data. So a hostile completion can return any output, but does not know the right
one. `oracle` has the rules by which an output counts as right.
"""

import json
from dataclasses import dataclass
from typing import Self

from rapid.grading import limits, verdicts
from rapid.grading.code import oracle
from rapid.grading.code.reference import (
    FunctionProblem,
    Reference,
    SlowReference,
    run_reference,
)
from rapid.grading.code.runner import encoding
from rapid.grading.code.sandbox import ENDED, FLOODED, STOPPED, TIMED_OUT, Sandbox, encode_job
from rapid.grading.result_cache import ResultCache
from rapid.grading.verdicts import Verdict


class CodeGrader:
    """Grades completions of `FunctionProblem`s. A context manager; threads take turns.

    Args:
        timeout: wall-clock seconds for one completion on all inputs together. Problems with a slow
            reference solution get more time (`Reference.compute_time_limit`).
        sandbox: runs the completions; None for the strongest sandbox that works on this machine.
        references: the expected outputs, shared with other graders so that each reference solution
            is run once, also if it does not end. By default the grader has its own.
    """

    def __init__(
        self,
        timeout: float,
        sandbox: Sandbox | None = None,
        references: ResultCache[Reference | SlowReference] | None = None,
    ):
        self.timeout = timeout
        self._sandbox = sandbox or Sandbox()
        self._references = references or ResultCache(limits.MAX_REFERENCES)

    def __enter__(self) -> Self:
        """Start the sandbox, which logs its isolation. Raise SandboxError if no layer works."""
        self._sandbox.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._sandbox.__exit__(*error)

    def describe_isolation(self) -> str:
        """Describe what isolates a completion from the machine."""
        return self._sandbox.describe_isolation()

    def prepare(self, problem: FunctionProblem) -> None:
        """Run the reference solution for its outputs. Raise BadProblem as `grade` does."""
        self.get_reference(problem)

    def get_reference(self, problem: FunctionProblem) -> Reference:
        """Return the problem's reference, for which its reference solution is run once.

        Raises:
            BadProblem: as in `grade`.
        """

        def run() -> Reference | SlowReference:
            try:
                return run_reference(problem, self._sandbox)
            except SlowReference as error:  # cached: each further run would take minutes too
                return error

        reference = self._references.get(problem.digest, run)
        if isinstance(reference, SlowReference):
            raise SlowReference(str(reference))
        return reference

    def grade(self, problem: FunctionProblem, completion: str) -> Verdict:
        """Grade the program in a completion; `runner.program` finds it, inside the sandbox.

        The function is called with one input after another until an output is wrong: first with
        the inputs of MBPP (`base_input`), then with those that EvalPlus added (`plus_input`).

        Raises:
            BadProblem: the problem has no inputs or its reference solution fails.
            GraderDied: the sandbox's runner died.
        """
        if not completion.strip():
            return verdicts.build_verdict(verdicts.NO_ANSWER)
        reference = self.get_reference(problem)
        comparison = _Comparison(reference)
        name = problem.entry_point
        as_sets = oracle.is_compared_as_set(name)
        job = encode_job(completion, name, reference.inputs_json, as_sets, is_completion=True)
        seconds = reference.compute_time_limit(self.timeout)
        ending = self._sandbox.run(job, seconds, comparison.receive, reference.line_limit)
        return verdicts.build_verdict(comparison.decide_reason(ending))


@dataclass
class _Comparison:
    """Compares a completion's outputs, as they arrive, with the expected ones.

    `receive` gets lines that hostile code has written, so they may be anything.
    """

    reference: Reference
    right_count: int = 0  # outputs that were compared and are right
    failure: str | None = None  # the verdict's reason once something is wrong

    def receive(self, line: bytes) -> bool:
        """Compare the output in a line with the expected one. Return whether to read another line.

        The line comes from the child: the process in the sandbox that runs the completion.
        """
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
            self.failure = verdicts.CRASHED  # not a line that the runner writes
            return False
        reference, index = self.reference, self.right_count
        call, expected = reference.inputs[index], reference.expected[index]
        atol = reference.tolerances[index]
        if not oracle.is_right(reference.entry_point, call, output, expected, atol):
            self.failure = verdicts.WRONG_ANSWER
            return False
        self.right_count += 1
        return self.right_count < len(reference.expected)

    def decide_reason(self, ending: str) -> str:
        """Return the reason of the verdict.

        Args:
            ending: how the job ended: a constant of `sandbox`, such as STOPPED.
        """
        if ending == STOPPED:
            return self.failure or verdicts.PASSED
        return _REASONS_BY_ENDING[ending]


# The reasons that a child may give for its failure. Only the grader decides whether a completion
# passed or ran out of time. `select_reasons` leaves out reasons for which the grader or the problem
# is to blame.
_CHILD_REASONS = verdicts.select_reasons("code", excluded={verdicts.PASSED, verdicts.TIMEOUT})
# The reason of the verdict for each ending of a job that `receive` did not stop. With FLOODED, one
# output was far longer than every expected output, so it is wrong.
_REASONS_BY_ENDING = {
    ENDED: verdicts.CRASHED,
    TIMED_OUT: verdicts.TIMEOUT,
    FLOODED: verdicts.WRONG_ANSWER,
}
