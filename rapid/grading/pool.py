"""Runs several graders side by side, remembers their verdicts, and asks again when one dies."""

import hashlib
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Self, TypeVar

from rapid.grading import limits, verdicts
from rapid.grading.grader import Grader, GraderDied, GradingFailed, Problem
from rapid.grading.verdicts import Verdict

log = logging.getLogger(__name__)

Result = TypeVar("Result")

MOST_UNGRADED = 0.01  # share of verdicts that may be infrastructure's, or one


class RememberedVerdict:
    """The verdict on a completion, once there is one, and a lock for whoever obtains it."""

    def __init__(self):
        self.turn = threading.Lock()
        self.verdict: Verdict | None = None


class SteadyGrader:
    """Several graders of one kind, which remember verdicts and are asked again after a death.

    Each has its own processes. A call takes a free one, or waits for one.

    A model in training repeats itself, and within a run a verdict depends on nothing but the
    problem and the completion. So each completion is graded once, and concurrent calls wait for
    that verdict. The last `limits.REMEMBERED_VERDICTS` are kept in memory and never written: no run
    is faster because of an earlier one, or sees verdicts of another version of the code.

    After a second death the verdict is `infrastructure`, without reward, and is not remembered.
    `reasons` counts all verdicts by reason. Safe to share between threads.

    Args:
        name: of the benchmark, for messages.
        make: makes one grader.
        workers: how many.
    """

    def __init__(self, name: str, make: Callable[[], Grader], workers: int = 1):
        self.name = name
        self.hits = 0  # verdicts that were remembered
        self.reasons: Counter[str] = Counter()
        self._graders = [make() for _ in range(workers)]
        self._free: SimpleQueue[Grader] = SimpleQueue()
        for grader in self._graders:
            self._free.put(grader)
        self._open = ExitStack()
        self._memories: OrderedDict[tuple[str, bytes], RememberedVerdict] = OrderedDict()
        self._last_death = ""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for grader in self._graders:
                opening.enter_context(grader)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.__exit__(*error)

    def walls(self) -> str:
        return self._graders[0].walls()

    def prepare(self, problem: Problem) -> None:
        self._ask_twice(lambda: self._lend(lambda grader: grader.prepare(problem)))

    def rehearse(self, exercises: list[tuple[Problem, str]]) -> None:
        """Have each grader do what takes longer the first time. These verdicts do not count."""
        for grader in self._graders:
            self._ask_twice(lambda grader=grader: grader.rehearse(exercises))

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Grade one completion.

        Raises:
            GradingFailed: more than one verdict, and more than 1 % of them, are infrastructure's.
        """
        try:
            verdict = self._ask_twice(lambda: self._remembered(problem, completion))
        except GraderDied as error:
            verdict = verdicts.verdict(verdicts.INFRASTRUCTURE)
            self._last_death = str(error)
        with self._lock:
            self.reasons[verdict.reason] += 1
            ungraded, total = self.reasons[verdicts.INFRASTRUCTURE], self.reasons.total()
        if ungraded > max(1, MOST_UNGRADED * total):
            raise GradingFailed(
                f"the grader of {self.name} died twice on each of {ungraded} of {total} "
                f"completions, which is more than {MOST_UNGRADED:.0%}; the last death: "
                f"{self._last_death}. Look for the kernel's out-of-memory killer (dmesg), "
                "check the free memory, and find out whether something ends processes on "
                "this machine"
            )
        return verdict

    def _remembered(self, problem: Problem, completion: str) -> Verdict:
        try:
            key = problem.digest, hashlib.sha256(completion.encode()).digest()
        except UnicodeEncodeError:  # half a surrogate pair: no text at all
            return verdicts.verdict(verdicts.UNPARSABLE)
        with self._lock:
            memory = self._memories.setdefault(key, RememberedVerdict())
            if len(self._memories) > limits.REMEMBERED_VERDICTS:
                self._memories.popitem(last=False)
        with memory.turn:
            if memory.verdict is None:
                memory.verdict = self._lend(lambda grader: grader.grade(problem, completion))
            else:
                self.hits += 1
            return memory.verdict

    def _lend(self, use: Callable[[Grader], Result]) -> Result:
        """Return the result of `use` on a free grader."""
        grader = self._free.get()
        try:
            return use(grader)
        finally:
            self._free.put(grader)

    def _ask_twice(self, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except GraderDied as error:
            log.warning("the grader of %s died, and is started again: %s", self.name, error)
        return ask()
