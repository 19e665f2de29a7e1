"""Grades proofs: each reading of a completion goes to a Lean that holds the problem's header."""

import time
from typing import Protocol, Self

from rapid.grading import limits, verdicts
from rapid.grading.grader import Problem
from rapid.grading.lean import LeanChecker
from rapid.grading.lean.extract import readings, stated, uses_lemmas
from rapid.grading.lean.launch import describe_walls
from rapid.grading.verdicts import Verdict

MISREAD = {verdicts.UNPARSABLE, verdicts.WRONG_ANSWER}  # what another reading might mend


class Theorem(Problem, Protocol):
    """A theorem to prove. `formal_statement` ends in `:= by`; `header` is what stands before it."""

    name: str
    formal_statement: str
    header: str


class LeanGrader:
    """Grades completions of `Theorem`s, with a Lean process for each of the last headers.

    Raises:
        BadStatement: Lean does not accept a problem's statement.
        LeanUnavailable: Lean does not start.
    """

    def __init__(self, timeout: float, unsafe: bool = False):
        self.timeout = timeout
        self.unsafe = unsafe  # a native Lean may run without walls
        self._checkers: dict[str, LeanChecker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for checker in self._checkers.values():
            checker.stop()
        self._checkers.clear()

    def walls(self) -> str:
        return describe_walls(self.unsafe)

    def prepare(self, problem: Theorem) -> None:
        """Start a Lean with the problem's header in it, and have the theorem elaborated there."""
        self._checker(problem.header).state(problem.name, stated(problem.formal_statement))

    def rehearse(self, exercises: list[tuple[Theorem, str]]) -> None:
        """Grade completions, unless Lean has proved as many of such theorems before.

        V8 compiles a function of Lean when it is first used. After this, few are left.
        """
        checker = self._checker(exercises[0][0].header)
        checker.wait_ready()
        if checker.answered < len({problem.formal_statement for problem, _ in exercises}):
            for problem, completion in exercises:
                self.grade(problem, completion)

    def grade(self, problem: Theorem, completion: str) -> Verdict:
        """Return the verdict on the first reading that is a proof, else on the first.

        All readings share one time limit. A proof that fails and names a lemma beside the theorem,
        which is left out, is forbidden.
        """
        checker = self._checker(problem.header)
        checker.wait_ready()
        deadline = time.monotonic() + self.timeout
        statement = stated(problem.formal_statement)
        graded = []
        proofs = readings(problem.name, statement, completion)
        for proof in proofs:
            seconds = deadline - time.monotonic()
            if graded and seconds <= 0:
                break
            graded.append(checker.check(problem.name, statement, proof, seconds))
            if graded[-1].reason not in MISREAD:
                break
        verdict = next((verdict for verdict in graded if verdict.reward), graded[0])
        if verdict.reason in MISREAD and uses_lemmas(problem.name, completion, proofs[0]):
            return verdicts.verdict(verdicts.FORBIDDEN)
        return verdict

    def _checker(self, header: str) -> LeanChecker:
        checker = self._checkers.pop(header, None)
        checker = checker or LeanChecker(self.timeout, header, unsafe=self.unsafe).start()
        while len(self._checkers) >= limits.LEAN_CHECKERS:
            self._checkers.pop(next(iter(self._checkers))).stop()
        self._checkers[header] = checker  # the last used is the last
        return checker
