"""One Lean process that is started, watched and ended here: JSON lines in, JSON lines out."""

import atexit
import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Collection

from rapid.grading.lean.install import Backend, LeanUnavailable, explain_failed_start
from rapid.grading.lean.launch import Role, launch

START_SECONDS = 300.0  # for importing the header: seconds for core Lean, a minute for Mathlib
MAX_LINE = 1 << 20  # bytes; an answer has some thousand
MAX_EXPORT = 1 << 26  # bytes; a proof has some ten thousand
CHUNK = 1 << 16
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # the second is what a shell makes of it


class ProcessDied(Exception):
    """The process ended without an answer, or broke the protocol.

    `was_killed` says whether something outside ended it, such as Linux for want of memory.
    """

    def __init__(self, how: str, was_killed: bool = False):
        super().__init__(how)
        self.was_killed = was_killed


class LeanProcess:
    """A Lean with the header in it, as author or as judge.

    Args:
        backend: the Lean.
        header: what stands before every statement.
        role: `author` or `judge`.
        answers: the values of `why` that it may answer with.
        unsafe: whether a native Lean may run without walls.

    Raises:
        LeanUnavailable: it cannot be started here.
    """

    def __init__(
        self, backend: Backend, header: str, role: Role, answers: Collection[str], unsafe: bool
    ):
        self.seconds: float | None = None  # from start to ready
        self._answers = answers
        self._started = time.monotonic()
        self._unread = bytearray()
        self._backend = backend
        self._header = header
        how = launch(backend, header, role, unsafe)
        self._scratch = how.scratch
        guarded, self._lifeline = os.pipe()  # it ends with us, whatever ends us: see launch.py
        try:
            self._process = subprocess.Popen(
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
        atexit.register(self.kill)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._write({"header": header})

    @property
    def pid(self) -> int:
        """Return the id of the process, which leads a group of its own."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until the header is imported.

        Raises:
            LeanUnavailable: Lean does not start or does not accept the header.
            ProcessDied: something outside ended it.
        """
        if self.seconds is not None:
            return
        try:
            answer = self._read(lambda answer: "ready" in answer, START_SECONDS)
        except TimeoutError:
            answer = {"ready": False, "why": "too slow"}
        except ProcessDied as death:
            if death.was_killed:
                raise
            answer = {"ready": False, "why": str(death)}
        if not answer["ready"]:
            raise LeanUnavailable(explain_failed_start(self._backend, self._header, answer["why"]))
        self.seconds = time.monotonic() - self._started

    def ask(self, request: dict, timeout: float, given: bytes | None = None) -> tuple[dict, bytes]:
        """Send one request, with the bytes `given`, and wait for its answer and the bytes of it.

        Raises:
            TimeoutError: no answer within `timeout` seconds.
            ProcessDied: and there will be none.
        """
        deadline = time.monotonic() + timeout
        secret = secrets.token_hex(16)
        counted = {} if given is None else {"bytes": len(given)}
        self._write(request | counted | {"id": secret}, given or b"")

        def is_wanted(answer: dict) -> bool:
            return answer.get("id") == secret and is_answer(answer, self._answers)

        answer = self._read(is_wanted, timeout)
        while len(self._unread) < answer.get("bytes", 0):
            self._read_more(deadline)
        export = bytes(self._unread[: answer.get("bytes", 0)])
        self._unread.clear()  # there is one question at a time: nothing else was to be said
        return answer, export

    def kill(self) -> None:
        """End the process and all that it started."""
        atexit.unregister(self.kill)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._lifeline)
        if self._scratch:
            self._scratch.unlink(missing_ok=True)
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _death(self) -> ProcessDied:
        """Return how the process ended; one that has closed its output may well live on."""
        try:
            status = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return ProcessDied("no more output")
        return ProcessDied(f"exit status {status}", was_killed=status in KILLED)

    def _write(self, message: dict, given: bytes = b"") -> None:
        with contextlib.suppress(BrokenPipeError):  # reading says that it died
            self._process.stdin.write(json.dumps(message).encode() + b"\n" + given)
            self._process.stdin.flush()

    def _read(self, is_wanted: Callable[[dict], bool], timeout: float) -> dict:
        deadline = time.monotonic() + timeout
        while True:
            while (end := self._unread.find(b"\n")) >= 0:
                answer = parse(bytes(self._unread[:end]))
                del self._unread[: end + 1]
                if is_wanted(answer):
                    return answer
            if len(self._unread) > MAX_LINE:
                raise ProcessDied("a line without an end")
            self._read_more(deadline)

    def _read_more(self, deadline: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            # Asked even where there is more to read: a flood of lines must not go on for ever.
            seconds = deadline - time.monotonic()
            if seconds <= 0 or not selector.select(seconds):
                raise TimeoutError
        if not (chunk := os.read(self._process.stdout.fileno(), CHUNK)):
            raise self._death()
        self._unread += chunk


def parse(line: bytes) -> dict:
    """Return a line as JSON; {} for one that is something else, as what a proof prints."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def is_answer(answer: dict, reasons: Collection[str]) -> bool:
    """Return whether this has the form of an answer with one of these reasons."""
    count, megabytes = answer.get("bytes", 0), answer.get("megabytes", 0)
    return (
        isinstance(why := answer.get("why"), str)
        and why in reasons
        and isinstance(megabytes, int | float)
        and isinstance(messages := answer.get("messages"), list)
        and all(isinstance(message, str) for message in messages)
        and isinstance(count, int)
        and 0 <= count <= MAX_EXPORT
    )
