"""What every grader offers, several of them side by side, and a cache in front."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Protocol, Self, TypeVar

from rapid.records import BadInput, Problem, Verdict

AProblem = TypeVar("AProblem", bound=Problem, contravariant=True)


class BadProblem(BadInput):
    """No completion of this problem can be graded: the problem is at fault, not the completion."""


class GraderDied(RuntimeError):
    """A grader's own process died, which says nothing about the completion."""


class Grader(Protocol[AProblem]):
    """Says whether a completion solves a problem.

    A grader owns processes: use it as a context manager, on one problem kind, for a whole run.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def prepare(self, problem: AProblem) -> None:
        """Do what a problem's first verdict would wait for; `grade` does it where nobody has."""
        ...

    def grade(self, problem: AProblem, completion: str) -> Verdict:
        """Grade one completion. Whatever a completion does, this returns a verdict."""
        ...


class GraderPool:
    """Graders side by side, each with its own processes. A call gets one that is free, or waits.

    Args:
        make: makes a grader.
        size: how many.
    """

    def __init__(self, make: Callable[[], Grader], size: int):
        self._graders = [make() for _ in range(size)]
        self._free: SimpleQueue[Grader] = SimpleQueue()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for grader in self._graders:
                self._free.put(opening.enter_context(grader))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.__exit__(*error)

    def prepare(self, problem: Problem) -> None:
        with self._one() as grader:
            grader.prepare(problem)

    def grade(self, problem: Problem, completion: str) -> Verdict:
        with self._one() as grader:
            return grader.grade(problem, completion)

    @contextmanager
    def _one(self) -> Iterator[Grader]:
        grader = self._free.get()
        try:
            yield grader
        finally:
            self._free.put(grader)


class CachedGrader:
    """Remembers the verdicts of another grader by the contents of problem and completion.

    For one run: verdicts are kept in memory and never written, so that no run is faster for an
    earlier one, and none meets the verdicts of another grader's version. A model that trains
    repeats itself, and within a run a verdict depends on nothing but the two.
    """

    def __init__(self, grader: Grader):
        self.grader = grader
        self.hits = 0
        self.misses = 0
        self._verdicts: dict[tuple[str, str], Verdict] = {}

    def __enter__(self) -> Self:
        self.grader.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.grader.__exit__(*error)

    def prepare(self, problem: Problem) -> None:
        self.grader.prepare(problem)

    def grade(self, problem: Problem, completion: str) -> Verdict:
        key = (problem.digest, completion)
        if key in self._verdicts:
            self.hits += 1
        else:
            self.misses += 1
            self._verdicts[key] = self.grader.grade(problem, completion)
        return self._verdicts[key]
