"""The reasons of verdicts. Each is declared here, once.

All graders use the reasons of this list, so that the counts in evaluation.json mean the same for
code, mathematics and Lean. The processes of graders, some of which are in JavaScript or Lean, send
reasons as text. Which reasons a process may send follows from this list, and
tests/grading/test_verdicts.py compares the sources of the processes with the list.
"""

import sys
from collections.abc import Collection
from typing import NamedTuple

from pydantic import Field

from rapid.artifacts import evaluations
from rapid.artifacts.files import Record


class Reason(NamedTuple):
    """A reason of a verdict."""

    meaning: str  # description for the documentation
    graders: frozenset[str]  # the graders that use this reason: "code", "math", "lean"
    # If the grader or the problem is at fault instead, the reward is None.
    is_caused_by_completion: bool = True


REASONS: dict[str, Reason] = {}  # by name, in the order of the documentation


def _declare(
    name: str, meaning: str, graders: str = "code math lean", is_caused_by_completion: bool = True
) -> str:
    """Add a reason to `REASONS` and return its name. `graders` are separated by spaces."""
    REASONS[name] = Reason(meaning, frozenset(graders.split()), is_caused_by_completion)
    return name


PASSED = _declare(evaluations.PASSED, "correct; the only reason with reward 1")
WRONG_ANSWER = _declare("wrong_answer", "its answer or output is not the expected one")
TIMEOUT = _declare("timeout", "did not finish in time")
MEMORY = _declare("memory", "needed more memory than allowed")
CRASHED = _declare("crashed", "raised an exception, exited or died before answering")
FORBIDDEN = _declare(
    "forbidden",
    "used something forbidden: files, network, processes, `sorry`, axioms, other lemmas",
    "code lean",
)
UNPARSABLE = _declare(evaluations.UNPARSABLE, "is not a program, proof or expression")
NO_ANSWER = _declare("no_answer", "has no answer: no such function, no `\\boxed{}`", "code math")
INFRASTRUCTURE = _declare(
    "infrastructure",
    "not graded: the grader died twice on it; no reward",
    is_caused_by_completion=False,
)
BAD_PROBLEM = _declare(
    "bad_problem",
    "not graded: its problem is at fault; no reward",
    is_caused_by_completion=False,
)


def select_reasons(grader: str, excluded: Collection[str] = ()) -> set[str]:
    """Return the names of the reasons that a completion can cause in a grader, minus `excluded`."""
    return {
        name
        for name, reason in REASONS.items()
        if reason.is_caused_by_completion and grader in reason.graders and name not in excluded
    }


class Verdict(Record):
    """A grader's verdict on one completion.

    `reward` is 1.0 for a correct completion, 0.0 for an incorrect one, and None if the grader died
    or the problem is at fault. `reason` is a name of `REASONS`.
    """

    reward: float | None = Field(ge=0, le=1)
    reason: str


def build_verdict(reason: str) -> Verdict:
    """Return the verdict with this reason; raise ValueError if `REASONS` does not have it."""
    if reason not in REASONS:
        raise ValueError(f"{reason!r} is not a reason of rapid.grading.verdicts")
    reward = float(reason == PASSED) if REASONS[reason].is_caused_by_completion else None
    return Verdict(reward=reward, reason=reason)


def report_ungraded(reasons: dict[str, int]) -> None:
    """Print how many completions were not graded because the grader died, if there are any."""
    if count := reasons.get(INFRASTRUCTURE):
        total = sum(reasons.values())
        print(f"{count} of {total} completions were not graded: the grader died", file=sys.stderr)
