"""Lean processes that outlive a job: the warm process keeps them and lends them to its jobs.

A job is forked from the warm process, so it has the pipes of what is lent to it. Each process
serves one job at a time. When that job has ended well, its memory is put back and the next job may
have it; when the job failed or was killed, it is ended. The functions that V8 has compiled for one
job are there for the next, and so are the statements that the judge has elaborated.
"""

import functools
import os
from collections.abc import Callable

from rapid.grading.lean.install import Backend, LeanUnavailable, find_lean
from rapid.grading.lean.launch import Role
from rapid.grading.lean.process import ANSWERS, LeanProcess

HEADER = ""  # of made theorems; those of Mathlib need a native Lean, which starts for each job

_idle: list[dict[Role, LeanProcess]] = []  # of the warm process
_lent: dict[Role, LeanProcess] = {}  # to the job that this process is, or forks next
os.register_at_fork(after_in_parent=_lent.clear)


def lend() -> Callable[[bool], None] | None:
    """Lend an author and a judge to the job that is forked next.

    Returns:
        What to call when it has ended: whether it ended well. None where there is no Lean to lend.
    """
    backend = _backend()
    if backend is None or backend.kind != "wasm":
        return None
    pair = _idle.pop() if _idle else {}
    try:
        for role in ANSWERS:
            if role in pair and not pair[role].lives:
                pair.pop(role).kill()
            if role not in pair:
                pair[role] = LeanProcess(backend, HEADER, role, waits=True)
    except (LeanUnavailable, OSError):  # the job starts its own, or says why not
        for process in pair.values():
            process.kill()
        return None
    _lent.update(pair)
    return lambda ended_well: _take_back(pair, ended_well)


@functools.cache
def _backend() -> Backend | None:
    return find_lean()


def _take_back(pair: dict[Role, LeanProcess], ended_well: bool) -> None:
    for role, process in list(pair.items()):
        if not (ended_well and process.lives):
            pair.pop(role).kill()
    if pair:
        _idle.append(pair)


def borrowed(role: Role, backend: Backend, header: str) -> LeanProcess | None:
    """Return the process of this role that was lent to this job, if it serves this header."""
    process = _lent.get(role)
    if process is None or not process.is_borrowed or not process.serves(backend, header):
        return None
    process.follow()
    process.renew()
    return _lent.pop(role)
