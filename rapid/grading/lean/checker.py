"""Lean proofs judged by a process that is started, watched and ended here.

The proof is an adversary's text. It reaches Lean as a string in a JSON request and nothing of it is
run outside; the process has a minimal environment, reads its own files only, and its answers
carry a secret number that a proof which prints cannot know.
"""

import atexit
import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Self

from rapid.grading import reasons
from rapid.grading.base import BadProblem
from rapid.grading.lean.install import Backend, LeanUnavailable, ensure_lean
from rapid.grading.lean.launch import launch
from rapid.records import Verdict

MAX_PROOF = 8192  # bytes of UTF-8
MAX_MEGABYTES = 1500  # of memory (1e6 bytes), above which the process is replaced
START_SECONDS = 300.0  # for importing the header: seconds for core Lean, a minute for Mathlib
MAX_UNREAD = 1 << 20  # bytes without a line's end; an answer has some thousand


class BadStatement(BadProblem):
    """Lean does not accept the statement to be proved: the problem is at fault, not the proof."""


class LeanChecker:
    """Checks proofs one after another in one Lean process. Safe to share between threads.

    The reasons of its verdicts are PASSED, WRONG_ANSWER (Lean reports an error), UNPARSABLE (not
    one theorem up to the end of the text), FORBIDDEN (`sorry`, an axiom, a changed statement, what
    the kernel refuses, an oversized text or one with NUL), TIMEOUT, and CRASHED (the process died).

    Args:
        timeout: seconds of wall-clock time a proof.
        header: what stands before every statement: imports, `open`, `set_option`. The WebAssembly
            Lean has the core library only.
        backend: the Lean to use; that of `ensure_lean()` if None.
    """

    def __init__(self, timeout: float, header: str = "", backend: Backend | None = None):
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}, which is no time")
        self.timeout = timeout
        self.header = header
        self.backend = backend
        self._process: LeanProcess | None = None
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start Lean and return at once; it gets ready while the caller does something else.

        Raises:
            LeanUnavailable: there is no Lean.
        """
        with self._turn:
            self._start()
        return self

    def wait_ready(self) -> float:
        """Wait until the header is imported. Returns the seconds since the process was started.

        Raises:
            LeanUnavailable: Lean does not start, or does not accept the header.
        """
        with self._turn:
            return self._ready().seconds

    def check(self, name: str, statement: str, proof: str) -> Verdict:
        """Judge `proof` as the continuation of `statement`, which ends in `:= by`.

        The two are joined as they are; where no space is between them, by a line break.

        Args:
            name: that of the theorem, as Lean knows it after `statement`.

        Raises:
            BadStatement: Lean does not accept the statement.
            LeanUnavailable: Lean does not start.
        """
        proof = proof.replace("\r\n", "\n").replace("\r", "\n")
        if "\0" in proof or len(proof.encode("utf-8", "replace")) > MAX_PROOF:
            return reasons.verdict(reasons.FORBIDDEN)
        if not (statement[-1:].isspace() or proof[:1].isspace()):
            statement += "\n"
        with self._turn:
            answer = self._ask({"name": name, "statement": statement, "proof": proof})
        if answer["why"] == "bad statement":
            raise BadStatement(f"{name}: {'; '.join(answer['messages']) or 'not accepted by Lean'}")
        return reasons.verdict(answer["why"])

    def stop(self) -> None:
        """End the process, if there is one."""
        with self._turn:
            self._stop()

    def _ask(self, request: dict) -> dict:
        process = self._ready()
        try:
            answer = process.ask(request, self.timeout)
        except TimeoutError:
            answer = {"why": reasons.TIMEOUT, "messages": []}
        except ProcessDied:
            answer = {"why": reasons.CRASHED, "messages": []}
        except BaseException:  # an interrupted caller must not leave an answer for the next one
            self._stop()
            raise
        if answer["why"] in (reasons.TIMEOUT, reasons.CRASHED) or (
            answer.get("megabytes", 0) > MAX_MEGABYTES
        ):
            self._stop()
            self._start()
        return answer

    def _start(self) -> None:
        if self._process is None:
            self.backend = self.backend or ensure_lean()
            self._process = LeanProcess(self.backend, self.header)

    def _ready(self) -> "LeanProcess":
        self._start()
        try:
            self._process.wait_ready()
        except BaseException:
            self._stop()
            raise
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


class ProcessDied(RuntimeError):
    """The Lean process ended without an answer."""


class LeanProcess:
    """One Lean process with the header in it: JSON lines in, JSON lines out."""

    def __init__(self, backend: Backend, header: str):
        self.seconds: float | None = None  # from start to ready
        self._started = time.monotonic()
        self._unread = b""
        how = launch(backend, header)
        self._process = subprocess.Popen(
            how.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=how.environment,
            cwd=how.folder,
            start_new_session=True,
        )
        atexit.register(self.kill)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._write({"header": header})

    def wait_ready(self) -> None:
        """Raises LeanUnavailable where Lean does not start or does not accept the header."""
        if self.seconds is not None:
            return
        try:
            answer = self._read(lambda answer: "ready" in answer, START_SECONDS)
        except (TimeoutError, ProcessDied) as error:
            raise LeanUnavailable(f"Lean did not start: {error or 'too slow'}") from None
        if not answer["ready"]:
            raise LeanUnavailable(f"Lean did not start: {answer['why']}")
        self.seconds = time.monotonic() - self._started

    def ask(self, request: dict, timeout: float) -> dict:
        """Send one request and wait for its answer.

        Raises:
            TimeoutError: no answer within `timeout` seconds.
            ProcessDied: and there will be none.
        """
        secret = secrets.token_hex(8)
        self._write(request | {"id": secret})
        return self._read(lambda answer: answer.get("id") == secret, timeout)

    def kill(self) -> None:
        """End the process and all that it started."""
        atexit.unregister(self.kill)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _write(self, message: dict) -> None:
        with contextlib.suppress(BrokenPipeError):  # reading says that it died
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self, wanted: Callable[[dict], bool], timeout: float) -> dict:
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                while b"\n" in self._unread:
                    line, self._unread = self._unread.split(b"\n", 1)
                    answer = parse(line)
                    if wanted(answer):
                        return answer
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                if not (chunk := os.read(self._process.stdout.fileno(), 1 << 16)):
                    raise ProcessDied(f"exit status {self._process.wait()}")
                self._unread += chunk
                if len(self._unread) > MAX_UNREAD:
                    raise ProcessDied("a line without an end")


def parse(line: bytes) -> dict:
    """A line as JSON; {} for one that is something else, as what a proof prints."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
