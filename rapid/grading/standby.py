"""Graders' processes that outlive a job: the warm process keeps them and lends them to its jobs.

A job is forked from the warm process, so it has the pipes and sockets of what is lent to it. A
process serves one job at a time. When that job has ended well, the next may have it; when it failed
or was killed, the process is ended.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Lasting(Protocol):
    """A process that can be lent."""

    pid: int

    @property
    def lives(self) -> bool:
        """Return whether it has not ended, and was not left in the middle of an answer."""

    @property
    def is_borrowed(self) -> bool:
        """Return whether another process started it."""

    def end(self) -> None: ...


Kept = TypeVar("Kept", bound=Lasting)


class Standby(Generic[Kept]):
    """Keeps sets of processes, one of each role, as many as there are jobs at a time.

    Args:
        start: starts a process of a role, which does nothing until its borrower asks it to: its
            work is on the borrower's cores.
        roles: of a set.
    """

    def __init__(self, start: Callable[[Any], Kept], roles: Sequence[str]):
        self._start, self._roles = start, roles
        self._idle: list[dict[str, Kept]] = []  # of the warm process
        self._lent: dict[str, Kept] = {}  # to the job that this process is, or forks next
        os.register_at_fork(after_in_parent=self._lent.clear)

    def lend(self) -> Callable[[bool], None] | None:
        """Lend a set to the job that is forked next.

        Returns:
            What to call when it has ended: whether it ended well. None where none can be started.
        """
        kept = self._idle.pop() if self._idle else {}
        try:
            for role in self._roles:
                if role in kept and not kept[role].lives:
                    kept.pop(role).end()
                if role not in kept:
                    kept[role] = self._start(role)
        except (OSError, RuntimeError):  # the job starts its own, or says why not
            for process in kept.values():
                process.end()
            return None
        self._lent.update(kept)
        return lambda ended_well: self._take_back(kept, ended_well)

    def _take_back(self, kept: dict[str, Kept], ended_well: bool) -> None:
        for role, process in list(kept.items()):
            if not (ended_well and process.lives):
                kept.pop(role).end()
        if kept:
            self._idle.append(kept)

    def borrowed(self, role: str, fits: Callable[[Kept], bool] = lambda _: True) -> Kept | None:
        """Return what was lent to this job in a role, once, if it fits: now on the job's cores."""
        process = self._lent.get(role)
        if process is None or not process.is_borrowed or not fits(process):
            return None
        with contextlib.suppress(OSError):  # it has ended, which the next question finds out
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), os.sched_getaffinity(0))
        return self._lent.pop(role)
