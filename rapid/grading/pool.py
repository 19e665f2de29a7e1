"""Runs several graders in parallel, caches their verdicts, and retries when a grader dies."""

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Self, TypeVar

from rapid.grading import limits, verdicts
from rapid.grading.grader import Grader, GraderDied, GradersClosed, GradingFailed, Problem
from rapid.grading.result_cache import ResultCache
from rapid.grading.verdicts import Verdict

log = logging.getLogger(__name__)

Result = TypeVar("Result")

# Largest share of verdicts with the reason `infrastructure` (the grader died twice on the
# completion). One such verdict is always allowed.
MAX_UNGRADED_SHARE = 0.01


class GraderPool:
    """A pool of graders for one benchmark, with a cache of verdicts and a retry when one dies.

    Each grader has its own processes. A call uses a free grader, or waits until one is free.

    A model in training often repeats a completion, and within a run a verdict depends only on the
    problem and the completion. So each completion is graded once; concurrent calls with the same
    completion wait for its verdict. The last `limits.MAX_CACHED_VERDICTS` verdicts that were used
    are cached, in memory only. If they were written to disk, a run could be faster because of an
    earlier run, or get verdicts of another version of the code.

    If a grader dies twice on a completion, the verdict is `infrastructure`, without reward, and is
    not cached. `reasons` counts all verdicts by reason. Safe to share between threads.

    Args:
        name: the benchmark's name, for messages.
        build_grader: returns a new grader.
        workers: number of graders.
    """

    def __init__(self, name: str, build_grader: Callable[[], Grader], workers: int = 1):
        self.name = name
        self.reasons: Counter[str] = Counter()
        self._graders = [build_grader() for _ in range(workers)]
        self._free: SimpleQueue[Grader] = SimpleQueue()
        for grader in self._graders:
            self._free.put(grader)
        self._open_graders = ExitStack()
        self._is_closed = False
        self._verdicts = ResultCache[Verdict](limits.MAX_CACHED_VERDICTS)
        self._last_death = ""
        self._lock = threading.Lock()
        # Held by the thread that takes all graders: two such threads would wait for each other.
        self._all_graders_lock = threading.Lock()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for grader in self._graders:
                opening.enter_context(grader)
            self._open_graders = opening.pop_all()
        self._is_closed = False
        return self

    def __exit__(self, *error: object) -> None:
        self._is_closed = True
        self._open_graders.__exit__(*error)

    @property
    def size(self) -> int:
        """The number of graders, and so of completions that are graded at the same time."""
        return len(self._graders)

    def describe_isolation(self) -> str:
        """Describe what separates a completion from the machine (`Grader.describe_isolation`)."""
        return self._graders[0].describe_isolation()

    def prepare(self, problem: Problem) -> None:
        """Do the slow work for a problem before its first verdict, in each of the graders."""
        self._with_each_grader(lambda grader: grader.prepare(problem))

    def warm_up(self, samples: list[tuple[Problem, str]]) -> None:
        """Warm up each grader with problems and completions; their verdicts are not counted.

        Only the graders of Lean can be warmed up, because only they have a method `warm_up`.
        """
        self._with_each_grader(lambda grader: grader.warm_up(samples))

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Grade one completion.

        Raises:
            GradingFailed: more than one verdict, and more than 1 % of all verdicts, have the reason
                `infrastructure`.
            GradersClosed: another thread has closed the pool.
        """
        try:
            verdict = self._retry_once(lambda: self._grade_cached(problem, completion))
        except GraderDied as error:
            verdict = verdicts.build_verdict(verdicts.INFRASTRUCTURE)
            self._last_death = str(error)
        with self._lock:
            self.reasons[verdict.reason] += 1
            ungraded, total = self.reasons[verdicts.INFRASTRUCTURE], self.reasons.total()
        if ungraded > max(1, MAX_UNGRADED_SHARE * total):
            raise GradingFailed(
                f"the grader of {self.name} died twice in a row on {ungraded} of {total} "
                f"completions (at most {MAX_UNGRADED_SHARE:.0%} are allowed). Its last error: "
                f"{self._last_death}. Look for the kernel's out-of-memory killer (dmesg), "
                "check the free memory, and find out whether another program kills processes "
                "on this machine"
            )
        return verdict

    def _grade_cached(self, problem: Problem, completion: str) -> Verdict:
        """Return the cached verdict on a completion, or grade it and cache the verdict."""
        try:
            key = problem.digest, hashlib.sha256(completion.encode()).digest()
        except UnicodeEncodeError:  # half a surrogate pair, which is not text
            return verdicts.build_verdict(verdicts.UNPARSABLE)
        return self._verdicts.get(
            key, lambda: self._with_free_grader(lambda grader: grader.grade(problem, completion))
        )

    def _with_each_grader(self, use: Callable[[Grader], None]) -> None:
        """Call `use` with each grader, after all of them have become free."""
        with self._all_graders_lock:
            graders = [self._free.get() for _ in self._graders]
            try:
                for grader in graders:
                    self._retry_once(lambda grader=grader: use(grader))
            finally:
                for grader in graders:
                    self._free.put(grader)

    def _with_free_grader(self, use: Callable[[Grader], Result]) -> Result:
        """Call `use` with a free grader, as soon as there is one, and return its result.

        If the pool is closed in the meantime, an error of `use` is replaced by GradersClosed.
        """
        grader = self._free.get()
        try:
            if not self._is_closed:
                return use(grader)
        except Exception:
            if not self._is_closed:
                raise
        finally:
            self._free.put(grader)
        raise GradersClosed(f"the graders of {self.name} were closed while a completion was graded")

    def _retry_once(self, use: Callable[[], Result]) -> Result:
        """Return the result of `use`, which is called again if a grader dies in the first call.

        A grader that has died starts its processes again in its next call.
        """
        try:
            return use()
        except GraderDied as error:
            log.warning("the grader of %s died, and is started again: %s", self.name, error)
        return use()
