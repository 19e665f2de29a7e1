"""The Lean processes that the fork server lends to its jobs: an author and a judge for each job.

`rapid.grading.standby` describes lending, `checker` the two roles. Before the next job gets the
processes, Lean's memory is put back to its state after the header. The next job profits from the
functions that V8 (node's JavaScript engine) has compiled, and from the statements that the judge
has elaborated.
"""

import functools
from collections.abc import Callable

from rapid.grading.lean.install import Backend, find_lean
from rapid.grading.lean.launch import Role
from rapid.grading.lean.process import ANSWERS, LeanProcess
from rapid.grading.standby import Standby

# The header of theorems that are generated from a seed: it is empty. A native Lean, which theorems
# that use Mathlib need, is not lent: each job starts its own.
HEADER = ""

STANDBY = Standby(
    lambda role: LeanProcess(_find_backend(), HEADER, role, waits_for_renew=True), roles=[*ANSWERS]
)


def lend() -> Callable[[bool], None] | None:
    """Lend an author and a judge to the job that is forked next, as `Standby.lend` does.

    Returns None if the WebAssembly Lean is not installed, or a native Lean is used instead.
    """
    backend = _find_backend()
    return STANDBY.lend() if backend is not None and backend.kind == "wasm" else None


@functools.cache
def _find_backend() -> Backend | None:
    """Return the Lean of this machine, which is searched for once in each process."""
    return find_lean()


def borrow(role: Role, backend: Backend, header: str) -> LeanProcess | None:
    """Return the process that was lent to this job for a role, and renew it (`LeanProcess.renew`).

    Returns None if none was lent, or if it has another header or is of another Lean.
    """
    if process := STANDBY.borrow(role, lambda process: process.serves(backend, header)):
        process.renew()
    return process
