"""Graders that all callers in a process share: started by the first call, ended at exit.

A process that is forked starts its own, and leaves those of its parent alone.
"""

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from rapid.grading.grader import BadProblem, Problem
from rapid.grading.pool import SteadyGrader
from rapid.grading.verdicts import BAD_PROBLEM, Verdict, verdict
from rapid.grading.worker import Worker

MAX_LOGGED_PROBLEMS = 20  # bad problems that the log names; it says that there are more

logger = logging.getLogger(__name__)


class SharedGraders:
    """A pool of graders, which is asked in several threads.

    The threads are daemons and end with their batch. So a process that is interrupted, or whose
    main thread ends, does not wait for verdicts.

    Args:
        pool: not started yet.
        workers: number of its graders.
    """

    def __init__(self, pool: SteadyGrader, workers: int):
        self._pool = pool.__enter__()
        self._workers = workers
        self._logged_problems: set[str] = set()  # the reasons of bad problems in the log

    def grade(
        self, problems: Sequence[Problem | BadProblem | None], completions: Sequence[str]
    ) -> list[Verdict | None]:
        """Return the verdicts on completions; None where there is no problem.

        The completions of a bad problem have the verdict `bad_problem`.

        Raises:
            GradingFailed: graders die too often.
            GradersClosed: another thread has called `close`.
            LeanUnavailable: Lean does not start.
        """
        jobs = list(zip(problems, completions, strict=True))
        if len(jobs) <= 1:  # for callers with threads of their own
            return [self._grade_completion(*job) for job in jobs]
        futures: list[Future[Verdict | None]] = [Future() for _ in jobs]
        queue = deque(zip(futures, jobs, strict=True))
        for _ in range(min(self._workers, len(jobs))):
            threading.Thread(target=self._grade_queue, args=(queue,), daemon=True).start()
        try:
            return [future.result() for future in futures]
        except KeyboardInterrupt:
            close()  # otherwise the next call would wait for the verdicts of this one
            raise
        finally:
            queue.clear()

    def _grade_queue(self, queue: deque) -> None:
        while queue:
            try:
                future, job = queue.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                future.set_result(self._grade_completion(*job))
            except BaseException as error:
                future.set_exception(error)

    def _grade_completion(
        self, problem: Problem | BadProblem | None, completion: str
    ) -> Verdict | None:
        if problem is None:
            return None
        try:
            if isinstance(problem, BadProblem):
                raise problem
            return self._pool.grade(problem, completion)
        except BadProblem as error:
            self._log_bad_problem(str(error))
            return verdict(BAD_PROBLEM)

    def _log_bad_problem(self, reason: str) -> None:
        if reason in self._logged_problems or len(self._logged_problems) > MAX_LOGGED_PROBLEMS:
            return
        self._logged_problems.add(reason)
        if len(self._logged_problems) > MAX_LOGGED_PROBLEMS:
            reason = "there are more such problems, which are not logged"
        logger.warning("completions of a problem are not graded: %s", reason)

    def close(self) -> None:
        self._pool.__exit__(None, None, None)


_shared: dict[tuple, SharedGraders] = {}
_lock = threading.Lock()


def share_graders(
    name: str, timeout: float, workers: int, build_pool: Callable[[float, int], SteadyGrader]
) -> SharedGraders:
    """Return this process's graders with these settings, which the first call builds and starts.

    Raises:
        GraderDied: a grader does not start. SandboxError, a subclass: completions cannot be
            sandboxed here.
    """
    key = name, timeout, workers
    with _lock:
        if key not in _shared:
            _shared[key] = SharedGraders(build_pool(timeout, workers), workers)
        return _shared[key]


@atexit.register
def close() -> None:
    """End the shared graders' processes. The next call starts new ones."""
    with _lock:
        while _shared:
            _shared.popitem()[1].close()


def _forget_parents_graders() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    if _shared:
        _shared.clear()
        for worker in [*Worker.started]:
            worker.release()


os.register_at_fork(after_in_child=_forget_parents_graders)
