"""Graders' processes that outlive a job: the fork server keeps them and lends them to its jobs.

A job is forked from the fork server, so it has the sockets of what is lent to it. A process serves
one job at a time. When that job has ended well, the next may have it; when it failed or was killed,
the process is ended.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from rapid.grading.worker import Worker

AWorker = TypeVar("AWorker", bound=Worker)


class Standby(Generic[AWorker]):
    """Keeps sets of processes, one of each role, as many as there are jobs at a time.

    Args:
        start: starts a process of a role, which does nothing until its borrower asks it to: its
            work is on the borrower's cores.
        roles: of a set.
    """

    def __init__(self, start: Callable[[Any], AWorker], roles: Sequence[str]):
        self._start, self._roles = start, roles
        self._idle: list[dict[str, AWorker]] = []  # of the fork server
        self._lent: dict[str, AWorker] = {}  # to the job that this process is, or forks next
        os.register_at_fork(after_in_parent=self._lent.clear)

    def lend(self) -> Callable[[bool], None] | None:
        """Lend a set to the job that is forked next.

        Returns:
            What to call when it has ended: whether it ended well. None where none can be started.
        """
        workers = self._idle.pop() if self._idle else {}
        try:
            for role in self._roles:
                if role in workers and not workers[role].lives:
                    workers.pop(role).end()
                if role not in workers:
                    workers[role] = self._start(role)
        except (OSError, RuntimeError):  # the job starts its own, or says why not
            for worker in workers.values():
                worker.end()
            return None
        self._lent.update(workers)
        return lambda ended_well: self._take_back(workers, ended_well)

    def _take_back(self, workers: dict[str, AWorker], ended_well: bool) -> None:
        for role, worker in list(workers.items()):
            if not (ended_well and worker.lives):
                workers.pop(role).end()
        if workers:
            self._idle.append(workers)

    def borrow(self, role: str, fits: Callable[[AWorker], bool] = lambda _: True) -> AWorker | None:
        """Return what was lent to this job in a role, once, if it fits: now on the job's cores."""
        worker = self._lent.get(role)
        if worker is None or not worker.is_borrowed or not fits(worker):
            return None
        with contextlib.suppress(OSError):  # it has ended, which the next question finds out
            for task in Path(f"/proc/{worker.pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), os.sched_getaffinity(0))
        return self._lent.pop(role)
