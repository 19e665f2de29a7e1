"""A Lean process, an author or a judge (see `checker`), to which the grader sends JSON lines."""

import atexit
import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, Field, ValidationError

from rapid.grading import limits, verdicts
from rapid.grading.lean.install import Backend, LeanUnavailable, explain_failed_start
from rapid.grading.lean.launch import Role, plan_launch
from rapid.grading.worker import LineReader, LineTooLong, Worker

# Exit statuses of a Lean that was killed: KILLED without native_sandbox.py, EXITED_AS_KILLED with
# it. A proof can also make an author exit with the second status.
KILLED = -signal.SIGKILL
EXITED_AS_KILLED = 128 + signal.SIGKILL

# Answers of a process, besides the reasons in verdicts.py.
ELABORATED = "elaborated"  # the author has elaborated the proof and exported it
STATED, BAD_STATEMENT = "stated", "bad statement"  # the judge accepts the statement, or does not
# A process cannot report a timeout: the grader measures the time.
REFUSALS = verdicts.select_reasons("lean", excluded={verdicts.PASSED, verdicts.TIMEOUT})
ANSWERS: dict[Role, set[str]] = {  # the answers that each role may give
    "author": REFUSALS | {ELABORATED},
    "judge": REFUSALS | {STATED, BAD_STATEMENT, verdicts.PASSED},
}


class Ready(BaseModel, strict=True):
    """The first line that a process sends, and its answer to `renew`."""

    id: str = ""
    ready: bool  # whether Lean has imported the header
    why: str = ""  # why Lean has not imported it
    answered: int = 0  # proofs that the process has elaborated or passed for earlier jobs


class Answer(BaseModel, strict=True):
    """The line that answers a request. `bytes` is the size of the export that follows the line."""

    id: str = ""
    why: str  # one of `ANSWERS`
    messages: list[str] = []  # from Lean
    megabytes: float = 0.0  # memory of the process, 0 if it does not say
    bytes: int = Field(0, ge=0, le=limits.LEAN_EXPORT_BYTES)


Line = TypeVar("Line", bound=BaseModel)


class ProcessDied(Exception):
    """The process ended without an answer, or violated the protocol.

    `was_killed` says whether something outside killed it, as Linux does when memory runs out.
    """

    def __init__(self, how: str, was_killed: bool = False):
        super().__init__(how)
        self.was_killed = was_killed


class LeanProcess(Worker):
    """A Lean process that has imported a header, as author or as judge.

    Its owner is the Python process that started it. A job that the owner forks can borrow it
    (standby.py). The borrower can send requests as the owner does, but cannot see the exit status
    of Lean.

    Args:
        backend: the Lean to start.
        header: the code before every statement, such as imports.
        role: "author" or "judge".
        unsafe: whether a native Lean may run without a sandbox.
        waits_for_renew: whether the process imports the header only when `renew` is called, so that
            it does its work on the CPU cores of the borrower.

    Raises:
        LeanUnavailable: the process cannot be started on this machine.
    """

    def __init__(
        self,
        backend: Backend,
        header: str,
        role: Role,
        unsafe: bool = False,
        waits_for_renew: bool = False,
    ):
        self.seconds: float | None = None  # from start to ready; None until it is ready
        self.answered = 0  # proofs for earlier jobs, as the process said when it got ready
        self._answers = ANSWERS[role]
        self._role = role
        self._killed_statuses = {KILLED, EXITED_AS_KILLED}  # of a process killed from outside
        self._renewal = ""  # id of the last `renew`, which its answer repeats
        self._started = time.monotonic()
        self._backend = backend
        self._header = header
        plan = plan_launch(backend, header, role, unsafe)
        self._scratch = plan.scratch
        # The guard in launch.py reads from standard error, which is a pipe. It ends Lean when the
        # present process, which holds the other end (`lifeline`), ends for any reason.
        guarded, lifeline = os.pipe()
        self._lifeline: int | None = lifeline
        try:
            super().__init__(
                plan.command,
                answers_on_stdout=True,
                stderr=guarded,
                env=plan.environment,
                cwd=plan.folder,
            )
        finally:
            os.close(guarded)
        self._reader = LineReader(self.connection, limits.LEAN_LINE_BYTES)
        atexit.register(self.end)
        if not waits_for_renew:
            self._write({"header": header})

    @property
    def is_alive(self) -> bool:
        """Return whether the process runs.

        Unlike in the base class, a readable socket does not mean that it has ended: a proof can
        make Lean print something.
        """
        return super().is_alive if self.is_borrowed else self.poll() is None

    def serves(self, backend: Backend, header: str) -> bool:
        """Return whether this process was started with this backend and this header."""
        return (self._backend, self._header) == (backend, header)

    def renew(self) -> None:
        """Have the process import the header for its first borrower.

        For later borrowers, have it put its memory back to the state after the header; a process
        with more than `limits.LEAN_LEND_MB` of memory ends instead. `wait_ready` waits for the
        answer.
        """
        self.seconds, self._started = None, time.monotonic()
        self._renewal = secrets.token_hex(16)
        request = {"header": self._header, "renew": self._renewal}
        self._write(request | {"megabytes": limits.LEAN_LEND_MB})

    def wait_ready(self) -> None:
        """Wait until the header is imported.

        Raises:
            LeanUnavailable: Lean does not start or does not accept the header.
            ProcessDied: the process was killed from outside.
        """
        if self.seconds is not None:
            return
        try:
            answer = self._read(
                Ready,
                time.monotonic() + limits.LEAN_START_SECONDS,
                lambda line: line.id == self._renewal or not line.ready,  # errors have no id
            )
        except TimeoutError:
            answer = Ready(ready=False, why="too slow")
        except ProcessDied as death:
            if death.was_killed:
                raise
            answer = Ready(ready=False, why=str(death))
        if not answer.ready:
            raise LeanUnavailable(explain_failed_start(self._backend, self._header, answer.why))
        self.seconds, self.answered = time.monotonic() - self._started, answer.answered
        # From now on an author reads proofs, which can make it exit with EXITED_AS_KILLED.
        if self._role == "author":
            self._killed_statuses = {KILLED}

    def request(
        self, request: dict, timeout: float, export: bytes | None = None
    ) -> tuple[Answer, bytes]:
        """Send a request and wait for the answer.

        Args:
            request: the fields of the request, without its id.
            timeout: seconds.
            export: bytes to send after the request: the export of a proof, for the judge.

        Returns:
            The answer, and the export that follows the answer (b"" without one).

        Raises:
            TimeoutError: there is no answer within `timeout` seconds.
            ProcessDied: the process has ended or violates the protocol.
        """
        deadline = time.monotonic() + timeout
        secret = secrets.token_hex(16)
        size = {} if export is None else {"bytes": len(export)}
        self._write(request | size | {"id": secret}, export or b"", timeout)
        answer = self._read(
            Answer, deadline, lambda line: line.id == secret and line.why in self._answers
        )
        # Bytes after the export are dropped: there is one request at a time, so they can only be
        # from a proof.
        return answer, self._read_or_die(lambda: self._reader.read_bytes(answer.bytes, deadline))

    def release(self) -> None:
        """Close a borrower's copies of the connection and the lifeline. The process goes on."""
        super().release()
        self._close_lifeline()

    def end(self, patience: float = 0.0) -> None:
        """End the process and all that it started."""
        if self.returncode is not None:  # it ended by itself; its guard may still run
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        super().end(patience)
        self._close_lifeline()
        if self._scratch:
            self._scratch.unlink(missing_ok=True)

    def _close_lifeline(self) -> None:
        atexit.unregister(self.end)
        lifeline, self._lifeline = self._lifeline, None  # another thread may call this too
        if lifeline is not None:
            os.close(lifeline)

    def _describe_death(self) -> ProcessDied:
        """Return how the process ended. It may still run if it has only closed its output."""
        if self.is_borrowed:
            # Only the process that started Lean can read Lean's exit status. `was_killed` keeps the
            # proof from being blamed: a new process gets it.
            return ProcessDied("exit status unknown to this job", was_killed=True)
        try:
            status = self.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return ProcessDied("no more output")
        return ProcessDied(f"exit status {status}", was_killed=status in self._killed_statuses)

    def _write(
        self, message: dict, export: bytes = b"", timeout: float = limits.LEAN_START_SECONDS
    ) -> None:
        self.connection.settimeout(max(0.001, timeout))
        with contextlib.suppress(ConnectionError):  # the next read reports the death
            self.connection.sendall(json.dumps(message).encode() + b"\n" + export)

    def _read(self, kind: type[Line], deadline: float, is_wanted: Callable[[Line], bool]) -> Line:
        """Return the first line that is a wanted answer. Lines that a proof prints are skipped."""
        while True:
            line = self._read_or_die(lambda: self._reader.read_line(deadline))
            with contextlib.suppress(ValidationError):
                if is_wanted(answer := kind.model_validate_json(line)):
                    return answer

    def _read_or_die(self, read: Callable[[], bytes]) -> bytes:
        """Return what `read` returns; raise ProcessDied if the socket is closed."""
        try:
            return read()
        except EOFError:
            raise self._describe_death() from None
        except LineTooLong:
            raise ProcessDied("its answer is too long") from None
