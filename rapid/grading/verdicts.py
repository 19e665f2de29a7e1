"""Why a completion got its reward: the closed set of `Verdict.reason`.

Every grader uses these and no others, so that the counts in evaluation.json mean the same thing
for code, mathematics and Lean.
"""

from pydantic import Field

from rapid.artifacts.files import Record

PASSED = "passed"  # correct; the only reason with reward 1
WRONG_ANSWER = "wrong_answer"  # ran, or was read, and is not the expected answer
TIMEOUT = "timeout"  # did not finish in time
MEMORY = "memory"  # asked for more memory than allowed
CRASHED = "crashed"  # raised an exception, exited or died before it had answered
FORBIDDEN = "forbidden"  # tried what a completion may not do: files, network, processes, `sorry`
UNPARSABLE = "unparsable"  # is not a program, proof or expression
NO_ANSWER = "no_answer"  # holds no answer: no such function, no \boxed{}
INFRASTRUCTURE = "infrastructure"  # not graded: the grader itself died; without reward
BAD_PROBLEM = "bad_problem"  # not graded: no completion of the problem could be; without reward

_OF_COMPLETIONS = {PASSED, WRONG_ANSWER, TIMEOUT, MEMORY, CRASHED, FORBIDDEN, UNPARSABLE, NO_ANSWER}
_OF_NO_COMPLETION = {INFRASTRUCTURE, BAD_PROBLEM}
REASONS = frozenset(_OF_COMPLETIONS | _OF_NO_COMPLETION)


class Verdict(Record):
    """What a grader says of one completion: `reward` is 1.0 for correct, else 0.0.

    It is `None` where the grader died or the problem is at fault: that says nothing of the
    completion.
    """

    reward: float | None = Field(ge=0, le=1)
    reason: str


def verdict(reason: str) -> Verdict:
    """Return the verdict with this reason; raise ValueError if it is none of `REASONS`."""
    if reason not in REASONS:
        raise ValueError(f"{reason!r} is not a reason of rapid.grading.verdicts")
    reward = None if reason in _OF_NO_COMPLETION else float(reason == PASSED)
    return Verdict(reward=reward, reason=reason)
