"""One Lean process: JSON lines in, JSON lines out."""

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

KILLED = -signal.SIGKILL
EXITED = 128 + signal.SIGKILL  # what the box makes of that; a proof in an author may say it, too

# Beside reasons of verdicts.py:
ELABORATED = "elaborated"  # the author has an export
STATED, BAD_STATEMENT = "stated", "bad statement"  # the judge accepts the statement, or not
# The time is the caller's to tell.
REFUSALS = verdicts.select_reasons("lean", but={verdicts.PASSED, verdicts.TIMEOUT})
ANSWERS: dict[Role, set[str]] = {  # what each may say
    "author": REFUSALS | {ELABORATED},
    "judge": REFUSALS | {STATED, BAD_STATEMENT, verdicts.PASSED},
}


class Ready(BaseModel, strict=True):
    """The first line, and the answer to `renew`: whether Lean has the header, and why not.

    `answered` counts the requests before.
    """

    id: str = ""
    ready: bool
    why: str = ""
    answered: int = 0


class Answer(BaseModel, strict=True):
    """The line that answers a request. `bytes` of an export follow it."""

    id: str = ""
    why: str
    messages: list[str] = []
    megabytes: float = 0.0
    bytes: int = Field(0, ge=0, le=limits.LEAN_EXPORT_BYTES)


Line = TypeVar("Line", bound=BaseModel)


class ProcessDied(Exception):
    """The process ended without an answer, or broke the protocol.

    `was_killed` says whether something outside ended it, such as Linux for want of memory.
    """

    def __init__(self, how: str, was_killed: bool = False):
        super().__init__(how)
        self.was_killed = was_killed


class LeanProcess(Worker):
    """A Lean with the header in it, as author or as judge.

    A process that is forked from its owner can borrow it (standby.py): it asks as the owner would,
    but cannot see how Lean ended.

    Args:
        backend: the Lean.
        header: what stands before every statement.
        role: `author` or `judge`.
        unsafe: whether a native Lean may run without walls.
        waits: whether it does nothing until `renew`, so that its work is on a borrower's cores.

    Raises:
        LeanUnavailable: it cannot be started here.
    """

    def __init__(
        self, backend: Backend, header: str, role: Role, unsafe: bool = False, waits: bool = False
    ):
        self.seconds: float | None = None  # from start to ready
        self.answered = 0  # requests before it was ready
        self._answers = ANSWERS[role]
        self._role, self._killed = role, {KILLED, EXITED}
        self._renewal = ""  # what the line that it is ready refers to
        self._started = time.monotonic()
        self._backend = backend
        self._header = header
        plan = plan_launch(backend, header, role, unsafe)
        self._scratch = plan.scratch
        guarded, lifeline = os.pipe()  # it ends with us, whatever ends us: see launch.py
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
        if not waits:
            self._write({"header": header})

    @property
    def lives(self) -> bool:
        """Return whether the process has not ended. A proof may have made it speak unasked."""
        return super().lives if self.is_borrowed else self.poll() is None

    def serves(self, backend: Backend, header: str) -> bool:
        """Return whether it was started with this header."""
        return (self._backend, self._header) == (backend, header)

    def renew(self) -> None:
        """Have it import the header, or put its memory back; `wait_ready` waits for that."""
        self.seconds, self._started = None, time.monotonic()
        self._renewal = secrets.token_hex(16)
        request = {"header": self._header, "renew": self._renewal}
        self._write(request | {"megabytes": limits.LEAN_LENT_MB})

    def wait_ready(self) -> None:
        """Wait until the header is imported.

        Raises:
            LeanUnavailable: Lean does not start or does not accept the header.
            ProcessDied: something outside ended it.
        """
        if self.seconds is not None:
            return
        try:
            answer = self._read(
                Ready,
                time.monotonic() + limits.LEAN_START_SECONDS,
                lambda line: line.id == self._renewal or not line.ready,
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
        if self._role == "author":  # from now on it reads proofs
            self._killed = {KILLED}

    def request(
        self, request: dict, timeout: float, export: bytes | None = None
    ) -> tuple[Answer, bytes]:
        """Send one request, with an export, and wait for its answer and the export in it.

        Raises:
            TimeoutError: no answer within `timeout` seconds.
            ProcessDied: and there will be none.
        """
        deadline = time.monotonic() + timeout
        secret = secrets.token_hex(16)
        size = {} if export is None else {"bytes": len(export)}
        self._write(request | size | {"id": secret}, export or b"", timeout)
        answer = self._read(
            Answer, deadline, lambda line: line.id == secret and line.why in self._answers
        )
        # There is one question at a time: nothing else was to be said.
        return answer, self._read_or_die(lambda: self._reader.read_bytes(answer.bytes, deadline))

    def release(self) -> None:
        super().release()
        self._close_lifeline()

    def end(self, patience: float = 0.0) -> None:
        """End the process and all that it started."""
        if self.returncode is not None:  # it ended before, and its guard may still be there
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        super().end(patience)
        self._close_lifeline()
        if self._scratch:
            self._scratch.unlink(missing_ok=True)

    def _close_lifeline(self) -> None:
        atexit.unregister(self.end)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _describe_death(self) -> ProcessDied:
        """Return how the process ended; one that has closed its output may well live on."""
        if self.is_borrowed:
            return ProcessDied("its owner knows how", was_killed=True)  # asked again, on a new one
        try:
            status = self.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return ProcessDied("no more output")
        return ProcessDied(f"exit status {status}", was_killed=status in self._killed)

    def _write(
        self, message: dict, export: bytes = b"", timeout: float = limits.LEAN_START_SECONDS
    ) -> None:
        self.connection.settimeout(max(0.001, timeout))
        with contextlib.suppress(ConnectionError):  # reading says that it died
            self.connection.sendall(json.dumps(message).encode() + b"\n" + export)

    def _read(self, kind: type[Line], deadline: float, is_wanted: Callable[[Line], bool]) -> Line:
        """Return the first line that is a wanted one; what a proof prints is passed over."""
        while True:
            line = self._read_or_die(lambda: self._reader.read_line(deadline))
            with contextlib.suppress(ValidationError):
                if is_wanted(answer := kind.model_validate_json(line)):
                    return answer

    def _read_or_die(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except EOFError:
            raise self._describe_death() from None
        except LineTooLong:
            raise ProcessDied("a line without an end") from None
