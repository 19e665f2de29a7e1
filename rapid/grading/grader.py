"""The interface of all graders, and the errors that they may raise."""

from typing import Protocol, Self, TypeVar

from rapid.artifacts.files import BadInput
from rapid.grading.verdicts import Verdict


class Problem(Protocol):
    """The fields that every problem has. A grader's own protocol adds those that it reads."""

    @property
    def id(self) -> str: ...

    @property
    def digest(self) -> str:
        """Of all that the problem says."""
        ...


AProblem = TypeVar("AProblem", bound=Problem, contravariant=True)


class BadProblem(BadInput):
    """No completion of this problem can be graded: the problem is at fault, not the completion."""


class GraderDied(RuntimeError):
    """A grader's own process died, not the completion's: there is no verdict on the completion."""


class GradingFailed(RuntimeError):
    """Graders die too often: the remaining verdicts would be a biased sample."""


class Grader(Protocol[AProblem]):
    """Decides whether a completion solves a problem.

    A grader owns processes: use it as a context manager, on one problem kind, for a whole run.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def walls(self) -> str:
        """Return a description of the walls around a completion; "" where none are needed.

        The grader must have started.
        """
        ...

    def prepare(self, problem: AProblem) -> None:
        """Do in advance what a problem's first verdict would wait for. `grade` works without it."""
        ...

    def grade(self, problem: AProblem, completion: str) -> Verdict:
        """Grade one completion. Whatever a completion does, this returns a verdict.

        Raises:
            GraderDied: the grader itself did not survive. It can be asked again.
        """
        ...
