"""The benchmarks: what a problem is, where it is published, what grades the answer.

`get_task(name)` gives one object a benchmark; `rapid.tasks.prompts` puts a problem to a policy. A completion ends where the policy says so, with its
end-of-text token; what it wrote up to there goes to the grader as it is.
"""

from importlib import import_module
from typing import Protocol

from rapid.grading.pool import SteadyGrader
from rapid.records import Problem
from rapid.sections import STRICT, Grading


class Task(Protocol):
    """One benchmark."""

    name: str
    row_type: type[Problem]
    usual_timeout: float  # seconds, for real problems

    def grader(self, timeout: float, workers: int = 1, policy: Grading = STRICT) -> SteadyGrader:
        """A grader of raw completions, to be used as a context manager.

        Args:
            timeout: seconds of wall-clock time that a verdict may take.
            workers: verdicts that can be made at a time, if as many threads ask for them.
            policy: which walls may be missing; by default none.
        """
        ...

    def unavailable(self) -> str | None:
        """Why completions cannot be graded on this machine, or None where they can."""
        ...


TASKS = ("mbpp_plus", "math", "minif2f")


def get_task(name: str) -> Task:
    """The benchmark of this name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in TASKS:
        raise ValueError(f"no benchmark {name!r}; there are {', '.join(TASKS)}")
    return import_module(f"rapid.tasks.{name}").TASK
