"""MiniF2F: Lean 4 theorems. A completion is the tactic block that follows `:= by`."""

import re
from typing import Self

from rapid.grading.base import CachedGrader, GraderPool
from rapid.grading.lean import LeanChecker, LeanUnavailable, ensure_lean
from rapid.records import LeanProblem, Verdict

_FENCE = re.compile(r"^```[^\n`]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE)


def extract_proof(name: str, completion: str) -> str:
    """The tactic block in a completion.

    With fenced blocks: the last one. Where it repeats the theorem of this name: what follows its
    first `:= by`. The statement that the completion gives is never used; the checker has its own.
    """
    blocks = _FENCE.findall(completion)
    text = blocks[-1] if blocks else completion
    repeated = re.search(rf"^\s*theorem\s+{re.escape(name)}\b.*?:=\s*by\b", text, re.DOTALL)
    return text[repeated.end() :] if repeated else text


class LeanGrader:
    """Grades completions of `LeanProblem`s. A Lean process is started for each header that occurs.

    Raises:
        BadStatement: Lean does not accept a problem's statement.
        LeanUnavailable: Lean does not start.
    """

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._checkers: dict[str, LeanChecker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for checker in self._checkers.values():
            checker.stop()
        self._checkers.clear()

    def grade(self, problem: LeanProblem, completion: str) -> Verdict:
        if problem.header not in self._checkers:
            self._checkers[problem.header] = LeanChecker(self.timeout, problem.header).start()
        proof = extract_proof(problem.name, completion)
        # As the prompt ends: where the statement ends in spaces, they would indent the first line.
        statement = problem.formal_statement.rstrip() + "\n"
        return self._checkers[problem.header].check(problem.name, statement, proof)


class MiniF2F:
    """The prompt is header, informal statement and formal statement, as the benchmark has them."""

    name = "minif2f"
    usual_timeout = 20.0
    row_type = LeanProblem

    def prompt(self, problem: LeanProblem) -> str:
        text = problem.header + problem.informal_prefix + problem.formal_statement
        return text.rstrip() + "\n"

    def grader(self, timeout: float, workers: int = 1) -> CachedGrader:
        return CachedGrader(GraderPool(lambda: LeanGrader(timeout), workers))

    def unavailable(self) -> str | None:
        try:
            ensure_lean()
        except LeanUnavailable as reason:
            return str(reason)
        return None


TASK = MiniF2F()
