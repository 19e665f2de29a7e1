"""Grades proofs: extracts the proof from a completion and has Lean check it.

It is not always clear which part of a completion is the proof. `extract.extract_candidate_proofs`
returns the candidates, the likeliest first. The header of a problem is the Lean code before its
statement, such as `import Mathlib`.
"""

import time
from typing import Protocol, Self

from rapid.grading import limits, verdicts
from rapid.grading.grader import Problem
from rapid.grading.lean import LeanChecker
from rapid.grading.lean.extract import cut_at_last_assignment, extract_candidate_proofs, uses_lemmas
from rapid.grading.lean.launch import describe_isolation
from rapid.grading.verdicts import Verdict

# If a candidate has one of these reasons, the next candidate is tried.
RETRIED_REASONS = {verdicts.UNPARSABLE, verdicts.WRONG_ANSWER}


class Theorem(Problem, Protocol):
    """A theorem to prove. `formal_statement` ends in `:= by`; `header` is the code before it."""

    name: str
    formal_statement: str
    header: str


class LeanGrader:
    """Grades completions of `Theorem`s.

    Each header has its own `LeanChecker`, because importing a header takes long. The grader keeps
    the checkers of the `limits.LEAN_CHECKERS` headers that were used last.

    `prepare`, `warm_up` and `grade` raise BadStatement if Lean does not accept the statement of a
    problem, and LeanUnavailable if Lean does not start.

    Args:
        timeout: wall-clock seconds for one completion.
        unsafe: whether a native Lean may run without a sandbox.
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

    def describe_isolation(self) -> str:
        return describe_isolation(self.unsafe)

    def prepare(self, problem: Theorem) -> None:
        """Start a Lean with the problem's header, and have it elaborate the statement."""
        self._get_checker(problem.header).elaborate_statement(
            problem.name, cut_at_last_assignment(problem.formal_statement)
        )

    def warm_up(self, samples: list[tuple[Theorem, str]]) -> None:
        """Grade completions to warm up Lean, unless its processes have been warmed up before.

        V8 (node's JavaScript engine) compiles a function of the WebAssembly Lean when the function
        is first called. So the first proofs take longer. A Lean that the fork server lends
        (standby.py) counts as warmed up if it has checked as many proofs as there are theorems in
        `samples`.
        """
        checker = self._get_checker(samples[0][0].header)
        checker.wait_ready()
        if checker.answered < len({problem.formal_statement for problem, _ in samples}):
            for problem, completion in samples:
                self.grade(problem, completion)

    def grade(self, problem: Theorem, completion: str) -> Verdict:
        """Return the verdict on the first candidate that passes, or else on the first candidate.

        All candidates together have one time limit. Lemmas that a completion declares besides the
        theorem are not passed to Lean. If a proof fails and uses such a lemma, the reason of the
        verdict is `forbidden`.
        """
        checker = self._get_checker(problem.header)
        checker.wait_ready()
        deadline = time.monotonic() + self.timeout
        statement = cut_at_last_assignment(problem.formal_statement)
        candidate_verdicts: list[Verdict] = []
        proofs = extract_candidate_proofs(problem.name, statement, completion)
        for proof in proofs:
            seconds = deadline - time.monotonic()
            if candidate_verdicts and seconds <= 0:
                break
            candidate_verdicts.append(checker.check(problem.name, statement, proof, seconds))
            if candidate_verdicts[-1].reason not in RETRIED_REASONS:
                break
        passed = (verdict for verdict in candidate_verdicts if verdict.reward)
        verdict = next(passed, candidate_verdicts[0])
        if verdict.reason in RETRIED_REASONS and uses_lemmas(problem.name, completion, proofs[0]):
            return verdicts.build_verdict(verdicts.FORBIDDEN)
        return verdict

    def _get_checker(self, header: str) -> LeanChecker:
        """Return the checker for a header.

        If there are then more than `limits.LEAN_CHECKERS`, the least recently used one is stopped.
        """
        checker = self._checkers.pop(header, None)
        checker = checker or LeanChecker(self.timeout, header, unsafe=self.unsafe)
        while len(self._checkers) >= limits.LEAN_CHECKERS:
            self._checkers.pop(next(iter(self._checkers))).stop()
        self._checkers[header] = checker  # the dictionary is in the order of last use
        return checker
