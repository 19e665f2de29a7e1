"""Graders that all callers in a process share: started by the first call, ended at exit.

A fork of the process starts its own, and leaves those of its parent alone.
"""

import atexit
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rapid.grading.grader import BadProblem, Problem
from rapid.grading.pool import SteadyGrader
from rapid.grading.verdicts import BAD_PROBLEM, Verdict, verdict
from rapid.grading.worker import Worker

logger = logging.getLogger(__name__)


class SharedGraders:
    """Graders of one kind, and the threads that ask them.

    Args:
        graders: not started yet.
        workers: how many they are.
    """

    def __init__(self, graders: SteadyGrader, workers: int):
        self.graders = graders.__enter__()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="grading")
        self._reported: set[str] = set()  # problems at fault, which the log has named

    def grade(
        self, problems: list[Problem | BadProblem | None], completions: list[str]
    ) -> list[Verdict | None]:
        """Return the verdicts on completions; None where there is no problem.

        Problems at fault have the verdict `bad_problem`, and are named in the log.

        Raises:
            GradingFailed: graders die too often.
            LeanUnavailable: Lean does not start.
        """
        if len(completions) == 1:  # called from threads, each with one completion
            return [self._grade_one(*job) for job in zip(problems, completions, strict=True)]
        return [*self._threads.map(self._grade_one, problems, completions)]

    def _grade_one(self, problem: Problem | BadProblem | None, completion: str) -> Verdict | None:
        if problem is None:
            return None
        try:
            if isinstance(problem, BadProblem):
                raise problem
            return self.graders.grade(problem, completion)
        except BadProblem as error:
            if (reason := str(error)) not in self._reported:
                self._reported.add(reason)
                logger.warning("completions of a problem are not graded: %s", reason)
            return verdict(BAD_PROBLEM)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.graders.__exit__(None, None, None)


_shared: dict[tuple, SharedGraders] = {}
_lock = threading.Lock()


def share_graders(
    name: str, timeout: float, workers: int, make: Callable[[float, int], SteadyGrader]
) -> SharedGraders:
    """Return this process's graders with these settings, which the first call makes and starts.

    Raises:
        SandboxError: completions cannot be sandboxed here.
    """
    key = name, timeout, workers
    with _lock:
        if key not in _shared:
            _shared[key] = SharedGraders(make(timeout, workers), workers)
        return _shared[key]


@atexit.register
def close() -> None:
    """End the shared graders' processes. The next call starts new ones."""
    with _lock:
        while _shared:
            _shared.popitem()[1].close()


def _leave_to_parent() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    if _shared:
        _shared.clear()
        for worker in [*Worker.started]:
            worker.release()


os.register_at_fork(after_in_child=_leave_to_parent)
