"""Graders that all callers in a process share. The first call starts them; they end at exit.

A forked process starts graders of its own, and does not use those of its parent.
"""

import atexit
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from rapid.grading.grader import BadProblem, GradersClosed, Problem
from rapid.grading.pool import GraderPool
from rapid.grading.verdicts import BAD_PROBLEM, Verdict, build_verdict
from rapid.grading.worker import Worker

MAX_LOGGED_PROBLEMS = 20  # bad problems that the log names; then it says that there are more

# A completion and its problem. The problem may also be an error or None (`SharedGraders.grade`).
Job = tuple[Problem | BadProblem | None, str]

logger = logging.getLogger(__name__)


class SharedGraders:
    """A pool of graders, and threads that use it.

    The threads are daemons, so a process can end while they wait for verdicts. With the threads of
    an executor it could not.

    Args:
        pool: a pool that has not been started.
    """

    def __init__(self, pool: GraderPool):
        self._pool = pool.__enter__()
        self._logged_problems: set[str] = set()  # the messages of bad problems that were logged
        self._log_lock = threading.Lock()
        self._is_open, self._queue_lock = True, threading.Lock()
        self._jobs: SimpleQueue[tuple[Future, Job] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run_jobs, daemon=True) for _ in range(pool.size)
        ]
        for thread in self._threads:
            thread.start()

    def grade(
        self, problems: Sequence[Problem | BadProblem | None], completions: Sequence[str]
    ) -> list[Verdict | None]:
        """Return the verdicts on completions; None where there is no problem.

        A BadProblem in `problems` is an error that was raised when the problem was read. Its
        completions, and those for which the grader raises one, have the verdict `bad_problem`.

        Raises:
            GradingFailed: graders die too often.
            GradersClosed: another thread has called `close`.
            LeanUnavailable: Lean does not start.
        """
        jobs = list(zip(problems, completions, strict=True))
        if len(jobs) == 1:  # needs no other thread; callers may have several threads of their own
            return [self._grade_completion(*jobs[0])]
        futures: list[Future[Verdict | None]] = [Future() for _ in jobs]
        try:
            self._queue_jobs([*zip(futures, jobs, strict=True)])
            return [future.result() for future in futures]
        except KeyboardInterrupt:
            close()  # otherwise the next call would wait for the verdicts of this one
            raise
        finally:
            for future in futures:
                future.cancel()

    def _queue_jobs(self, queued_jobs: Sequence[tuple[Future, Job] | None]) -> None:
        """Queue jobs for the threads. A None in place of a job ends the thread that takes it."""
        with self._queue_lock:
            if not self._is_open:
                raise GradersClosed("the graders were closed before a batch was graded")
            self._is_open = None not in queued_jobs
            for queued_job in queued_jobs:
                self._jobs.put(queued_job)

    def _run_jobs(self) -> None:
        while queued_job := self._jobs.get():
            future, job = queued_job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._grade_completion(*job))
                except BaseException as error:
                    future.set_exception(error)
            del queued_job, future, job  # do not keep them alive until the next job

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
            return build_verdict(BAD_PROBLEM)

    def _log_bad_problem(self, reason: str) -> None:
        with self._log_lock:
            count = len(self._logged_problems)
            if reason in self._logged_problems or count > MAX_LOGGED_PROBLEMS:
                return
            self._logged_problems.add(reason)
            if count == MAX_LOGGED_PROBLEMS:
                logger.warning("completions of more problems are not graded; they are not logged")
            else:
                logger.warning("completions of a problem are not graded: %s", reason)

    def close(self) -> None:
        """End the graders' processes, and the threads as soon as no job is queued."""
        self._queue_jobs([None for _ in self._threads])
        self._pool.__exit__(None, None, None)


_shared: dict[tuple, SharedGraders] = {}
_lock = threading.Lock()


def share_graders(
    name: str, timeout: float, workers: int, build_pool: Callable[[float, int], GraderPool]
) -> SharedGraders:
    """Return this process's graders with these settings. The first call builds and starts them.

    Args:
        name: the benchmark's name.
        timeout: seconds for a verdict.
        workers: number of graders.
        build_pool: builds the pool from `timeout` and `workers`.

    Raises:
        GraderDied: a grader does not start. SandboxError, a subclass: completions cannot be
            sandboxed here.
    """
    key = name, timeout, workers
    with _lock:
        if key not in _shared:
            _shared[key] = SharedGraders(build_pool(timeout, workers))
        return _shared[key]


@atexit.register
def close() -> None:
    """End the shared graders' processes. The next call starts new ones."""
    with _lock:
        while _shared:
            _shared.popitem()[1].close()


def _forget_parents_graders() -> None:
    """In a forked process, close the copies of the parent's connections to its graders."""
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    if _shared:
        _shared.clear()
        for worker in [*Worker.started]:
            if not worker.is_lent_to_forks:  # see `rapid.grading.standby`
                worker.release()


os.register_at_fork(after_in_child=_forget_parents_graders)
