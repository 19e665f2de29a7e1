"""What every grader offers, and a cache in front of one."""

from typing import Protocol, Self, TypeVar

from rapid.records import Problem, Verdict

AProblem = TypeVar("AProblem", bound=Problem, contravariant=True)


class Grader(Protocol[AProblem]):
    """Says whether a completion solves a problem.

    A grader owns processes: use it as a context manager, on one problem kind, for a whole run.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def grade(self, problem: AProblem, completion: str) -> Verdict:
        """Grade one completion. Whatever a completion does, this returns a verdict."""
        ...


class CachedGrader:
    """Remembers the verdicts of another grader by problem id and completion text.

    For one run: verdicts are kept in memory and never written. A model that trains repeats itself,
    and a verdict depends on nothing but the two.
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

    def grade(self, problem: Problem, completion: str) -> Verdict:
        key = (problem.id, completion)
        if key in self._verdicts:
            self.hits += 1
        else:
            self.misses += 1
            self._verdicts[key] = self.grader.grade(problem, completion)
        return self._verdicts[key]
