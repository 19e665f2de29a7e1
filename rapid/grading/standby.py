"""Grader processes that outlive a job, so that the next job need not start them.

The fork server (`rapid.processes.fork_server`) is a process that has imported torch, and forks one
process per job. It also keeps grader processes and lends them to its jobs: a forked job inherits
the sockets to them. A grader process serves one job at a time. After a job that succeeded, it is
lent again; after a job that failed or was killed, it is ended.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from rapid.grading.worker import Worker

WorkerT = TypeVar("WorkerT", bound=Worker)


class Standby(Generic[WorkerT]):
    """Keeps sets of grader processes in the fork server: as many sets as jobs run at a time.

    Args:
        start: starts a process for a role. The process does no work before the first request of
            the job that borrows it, so that it works on the CPU cores of that job.
        roles: the roles of the processes in a set, such as "author" and "judge" for Lean.
    """

    def __init__(self, start: Callable[[Any], WorkerT], roles: Sequence[str]):
        self._start, self._roles = start, roles
        self._idle: list[dict[str, WorkerT]] = []  # sets that no job has; used in the fork server
        # In the fork server: the set for the job that is forked next. In a job: the set lent to it.
        self._lent: dict[str, WorkerT] = {}
        os.register_at_fork(after_in_parent=self._lent.clear)

    def lend(self) -> Callable[[bool], None] | None:
        """Lend a set of processes to the job that is forked next.

        Returns:
            A function to call when that job has ended, with whether it succeeded. None if the
            processes cannot be started.
        """
        workers = self._idle.pop() if self._idle else {}
        try:
            for role in self._roles:
                if role in workers and not workers[role].is_alive:
                    workers.pop(role).end()
                if role not in workers:
                    workers[role] = self._start(role)
                    workers[role].is_lent_to_forks = True
        except (OSError, RuntimeError):  # the job will start them itself, and report the error
            for worker in workers.values():
                worker.end()
            return None
        self._lent.update(workers)
        return lambda ended_well: self._take_back(workers, ended_well)

    def _take_back(self, workers: dict[str, WorkerT], ended_well: bool) -> None:
        """Keep the processes of an ended job for the next job, or end them if the job failed."""
        for role, worker in list(workers.items()):
            if not (ended_well and worker.is_alive):
                workers.pop(role).end()
        if workers:
            self._idle.append(workers)

    def borrow(self, role: str, fits: Callable[[WorkerT], bool] = lambda _: True) -> WorkerT | None:
        """Return the process that was lent to this job for a role, moved to the job's CPU cores.

        Returns None if no process was lent, `fits` rejects it, an earlier call returned it, or this
        process is the fork server itself.
        """
        worker = self._lent.get(role)
        if worker is None or not worker.is_borrowed or not fits(worker):
            return None
        with contextlib.suppress(OSError):  # the process has ended: the next request will notice
            for task in Path(f"/proc/{worker.pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), os.sched_getaffinity(0))
        return self._lent.pop(role)
