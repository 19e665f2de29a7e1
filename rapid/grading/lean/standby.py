"""The Lean processes that the fork server lends to its jobs: an author and a judge for each.

Their memory is put back before the next job has them. The functions that V8 has compiled for one
job are there for the next, and so are the statements that the judge has elaborated.
"""

import functools
from collections.abc import Callable

from rapid.grading.lean.install import Backend, find_lean
from rapid.grading.lean.launch import Role
from rapid.grading.lean.process import ANSWERS, LeanProcess
from rapid.grading.standby import Standby

HEADER = ""  # of made theorems; those of Mathlib need a native Lean, which starts for each job

STANDBY = Standby(lambda role: LeanProcess(_backend(), HEADER, role, waits=True), [*ANSWERS])


def lend() -> Callable[[bool], None] | None:
    """Lend a pair to the job that is forked next, as `Standby.lend`; None without such a Lean."""
    backend = _backend()
    return STANDBY.lend() if backend is not None and backend.kind == "wasm" else None


@functools.cache
def _backend() -> Backend | None:
    return find_lean()


def borrow(role: Role, backend: Backend, header: str) -> LeanProcess | None:
    """Return the process of this role that was lent to this job, if it serves this header."""
    if process := STANDBY.borrow(role, lambda process: process.serves(backend, header)):
        process.renew()
    return process
