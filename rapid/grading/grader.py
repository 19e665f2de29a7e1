"""The interface of all graders, and the errors that they may raise.

A grader decides whether a completion solves a problem, and returns a verdict: a reward and a reason
(`rapid.grading.verdicts`).
"""

from typing import Protocol, Self, TypeVar

from rapid.artifacts.files import BadInput
from rapid.grading.verdicts import Verdict


class Problem(Protocol):
    """The fields that every problem has. Graders extend this protocol by the fields they need."""

    @property
    def id(self) -> str: ...

    @property
    def digest(self) -> str:
        """SHA-256 of all fields."""
        ...


ProblemT = TypeVar("ProblemT", bound=Problem, contravariant=True)


class BadProblem(BadInput):
    """The problem has a fault, which the message names. Its completions cannot be graded."""


class GraderDied(RuntimeError):
    """A grader's own process died, so there is no verdict. The completion was not the cause."""


class GradingFailed(RuntimeError):
    """Graders die so often that the remaining verdicts would be a biased sample."""


class GradersClosed(RuntimeError):
    """Another thread closed the graders while a completion was graded."""


class Grader(Protocol[ProblemT]):
    """Decides whether a completion solves a problem.

    A grader owns processes. Use it as a context manager, for one kind of problem and a whole run.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def describe_isolation(self) -> str:
        """Describe what isolates a completion's code from the rest of the machine.

        Returns "" if the grader runs no code, as the math grader. The grader must have been
        started.
        """
        ...

    def prepare(self, problem: ProblemT) -> None:
        """Do the slow work for a problem before its first verdict. Calling this is optional."""
        ...

    def grade(self, problem: ProblemT, completion: str) -> Verdict:
        """Grade one completion. Crashes, time-outs and attacks of the completion are verdicts too.

        Raises:
            GraderDied: the grader's own process died. The call can be repeated.
        """
        ...
