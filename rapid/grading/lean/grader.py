"""Grades proofs: reads the proof in a completion and has Lean check it.

It is not always clear which part of a completion is the proof. `extract.readings` returns the
possible proofs, likeliest first; each is called a reading. The header of a problem is the Lean code
before its statement, such as `import Mathlib`.
"""

import time
from typing import Protocol, Self

from rapid.grading import limits, verdicts
from rapid.grading.grader import Problem
from rapid.grading.lean import LeanChecker
from rapid.grading.lean.extract import readings, stated, uses_lemmas
from rapid.grading.lean.launch import describe_walls
from rapid.grading.verdicts import Verdict

MISREAD = {verdicts.UNPARSABLE, verdicts.WRONG_ANSWER}  # reasons to try the next reading


class Theorem(Problem, Protocol):
    """A theorem to prove. `formal_statement` ends in `:= by`; `header` is the code before it."""

    name: str
    formal_statement: str
    header: str


class LeanGrader:
    """Grades completions of `Theorem`s.

    For each header there is a `LeanChecker`, since importing a header takes long. The grader keeps
    those of the `limits.LEAN_CHECKERS` headers that were used last.

    Args:
        timeout: wall-clock seconds for one completion.
        unsafe: whether a native Lean may run without walls.

    Raises:
        BadStatement: Lean does not accept a problem's statement.
        LeanUnavailable: Lean does not start.
    """

    def __init__(self, timeout: float, unsafe: bool = False):
        self.timeout = timeout
        self.unsafe = unsafe
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
        """Start a Lean with the problem's header, and have it elaborate the statement."""
        self._checker(problem.header).state(problem.name, stated(problem.formal_statement))

    def rehearse(self, exercises: list[tuple[Theorem, str]]) -> None:
        """Grade these completions to warm up Lean, unless its processes are warm already.

        V8 (node's JavaScript engine) compiles a function of the WebAssembly Lean when the function
        is first called. So the first proofs take longer. A Lean that was lent by the fork server is
        warm if it has checked as many proofs as there are theorems here.
        """
        checker = self._checker(exercises[0][0].header)
        checker.wait_ready()
        if checker.answered < len({problem.formal_statement for problem, _ in exercises}):
            for problem, completion in exercises:
                self.grade(problem, completion)

    def grade(self, problem: Theorem, completion: str) -> Verdict:
        """Return the verdict on the first reading that is a proof; if none is, on the first
        reading.

        All readings together have one time limit. Lemmas that a completion declares besides the
        theorem are not passed to Lean. If a proof fails and uses such a lemma, the reason of the
        verdict is `forbidden`.
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
        """Return the checker for a header, started if needed; stop the one not used for longest."""
        checker = self._checkers.pop(header, None)
        checker = checker or LeanChecker(self.timeout, header, unsafe=self.unsafe).start()
        while len(self._checkers) >= limits.LEAN_CHECKERS:
            self._checkers.pop(next(iter(self._checkers))).stop()
        self._checkers[header] = checker  # the dictionary is in the order of use
        return checker
