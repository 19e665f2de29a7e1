"""One Lean process that is started, watched and ended here: JSON lines in, JSON lines out."""

import atexit
import contextlib
import json
import os
import secrets
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, Field, ValidationError

from rapid.grading import verdicts
from rapid.grading.lean.install import Backend, LeanUnavailable, explain_failed_start
from rapid.grading.lean.launch import Role, launch
from rapid.grading.limits import remove_group

START_SECONDS = 300.0  # for importing the header: seconds for core Lean, a minute for Mathlib
MAX_LINE = 1 << 20  # bytes; an answer has some thousand
MAX_EXPORT = 1 << 26  # bytes; a proof has some ten thousand
CHUNK = 1 << 16
KILLED = -signal.SIGKILL
EXITED = 128 + signal.SIGKILL  # what the box makes of that; a proof in an author may say it, too

# Beside the reasons of verdicts.py:
ELABORATED = "elaborated"  # the author has an export
STATED, BAD_STATEMENT = "stated", "bad statement"  # the judge accepts the statement, or not
REFUSALS = {verdicts.WRONG_ANSWER, verdicts.UNPARSABLE, verdicts.FORBIDDEN}
REFUSALS |= {verdicts.MEMORY, verdicts.CRASHED}
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
    bytes: int = Field(0, ge=0, le=MAX_EXPORT)


Line = TypeVar("Line", bound=BaseModel)


class ProcessDied(Exception):
    """The process ended without an answer, or broke the protocol.

    `was_killed` says whether something outside ended it, such as Linux for want of memory.
    """

    def __init__(self, how: str, was_killed: bool = False):
        super().__init__(how)
        self.was_killed = was_killed


class LeanProcess(subprocess.Popen):
    """A Lean with the header in it, as author or as judge, and leader of a process group.

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
        self._owner = os.getpid()
        self._answers = ANSWERS[role]
        self._role, self._killed = role, {KILLED, EXITED}
        self._renewal = ""  # what the line that it is ready refers to
        self._started = time.monotonic()
        self._unread = bytearray()
        self._backend = backend
        self._header = header
        how = launch(backend, header, role, unsafe)
        self._scratch = how.scratch
        guarded, self._lifeline = os.pipe()  # it ends with us, whatever ends us: see launch.py
        try:
            super().__init__(
                how.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=guarded,
                env=how.environment,
                cwd=how.folder,
                start_new_session=True,
            )
        finally:
            os.close(guarded)
        atexit.register(self.end)
        os.set_blocking(self.stdout.fileno(), False)
        if not waits:
            self._write({"header": header})

    @property
    def lives(self) -> bool:
        """Return whether the process has not ended."""
        if self.is_borrowed:  # nothing was asked: only the end can be read
            return not select.select([self.stdout], [], [], 0)[0]
        return self.poll() is None

    @property
    def is_borrowed(self) -> bool:
        """Return whether another process started it."""
        return os.getpid() != self._owner

    def serves(self, backend: Backend, header: str) -> bool:
        """Return whether it was started with this header."""
        return (self._backend, self._header) == (backend, header)

    def renew(self) -> None:
        """Have it import the header, or put its memory back; `wait_ready` waits for that."""
        self.seconds, self._started = None, time.monotonic()
        self._renewal = secrets.token_hex(16)
        self._write({"header": self._header, "renew": self._renewal})

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
                Ready, START_SECONDS, lambda found: found.id == self._renewal or not found.ready
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

    def ask(
        self, request: dict, timeout: float, given: bytes | None = None
    ) -> tuple[Answer, bytes]:
        """Send one request, with the bytes `given`, and wait for its answer and the bytes of it.

        Raises:
            TimeoutError: no answer within `timeout` seconds.
            ProcessDied: and there will be none.
        """
        deadline = time.monotonic() + timeout
        secret = secrets.token_hex(16)
        counted = {} if given is None else {"bytes": len(given)}
        self._write(request | counted | {"id": secret}, given or b"")
        answer = self._read(
            Answer, timeout, lambda found: found.id == secret and found.why in self._answers
        )
        while len(self._unread) < answer.bytes:
            self._read_more(deadline)
        export = bytes(self._unread[: answer.bytes])
        self._unread.clear()  # there is one question at a time: nothing else was to be said
        return answer, export

    def end(self) -> None:
        """End the process and all that it started."""
        atexit.unregister(self.end)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        remove_group(self.args)
        os.close(self._lifeline)
        if self._scratch:
            self._scratch.unlink(missing_ok=True)
        self.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()

    def _death(self) -> ProcessDied:
        """Return how the process ended; one that has closed its output may well live on."""
        if self.is_borrowed:
            return ProcessDied("its owner knows how", was_killed=True)  # asked again, on a new one
        try:
            status = self.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return ProcessDied("no more output")
        return ProcessDied(f"exit status {status}", was_killed=status in self._killed)

    def _write(self, message: dict, given: bytes = b"") -> None:
        with contextlib.suppress(BrokenPipeError):  # reading says that it died
            self.stdin.write(json.dumps(message).encode() + b"\n" + given)
            self.stdin.flush()

    def _read(
        self, kind: type[Line], timeout: float, is_wanted: Callable[[Line], bool] = lambda _: True
    ) -> Line:
        """Return the first line that is a wanted one; what a proof prints is passed over."""
        deadline = time.monotonic() + timeout
        while True:
            while (end := self._unread.find(b"\n")) >= 0:
                line = bytes(self._unread[:end])
                del self._unread[: end + 1]
                with contextlib.suppress(ValidationError):
                    if is_wanted(answer := kind.model_validate_json(line)):
                        return answer
            if len(self._unread) > MAX_LINE:
                raise ProcessDied("a line without an end")
            self._read_more(deadline)

    def _read_more(self, deadline: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            # Asked even where there is more to read: a flood of lines must not go on for ever.
            seconds = deadline - time.monotonic()
            if seconds <= 0 or not selector.select(seconds):
                raise TimeoutError
        if not (chunk := os.read(self.stdout.fileno(), CHUNK)):
            raise self._death()
        self._unread += chunk
