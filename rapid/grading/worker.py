"""Processes that work for graders: started, asked over a socket, and ended in one way."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from typing import ClassVar
from weakref import WeakSet

from rapid.grading.memory import LimitedCommand, remove_group

CHUNK = 1 << 18  # bytes


class Worker(subprocess.Popen):
    """A process whose standard input is a socket; `connection` is our end of it.

    It leads a session of its own, so that Ctrl-C reaches the grader alone, which then ends it.

    Args:
        command: the command line, from `memory.limit_memory`: no other is started.
        answers_on_stdout: whether its standard output is the socket, too, and not discarded.
        options: for `subprocess.Popen`.

    Raises:
        TypeError: the memory of the command is not limited.
    """

    started: ClassVar[WeakSet["Worker"]] = (
        WeakSet()
    )  # by this process, or by one it was forked from

    def __init__(self, command: LimitedCommand, answers_on_stdout: bool = False, **options):
        if not isinstance(command, LimitedCommand):
            raise TypeError(f"the memory of this command cannot be limited: {command}")
        self._owner = os.getpid()
        self.connection, far_end = socket.socketpair()
        with far_end:
            super().__init__(
                command,
                stdin=far_end,
                stdout=far_end if answers_on_stdout else subprocess.DEVNULL,
                start_new_session=True,
                **options,
            )
        self.started.add(self)

    def ask(self, message: bytes, seconds: float) -> bytes:
        """Send a message and return the answer; b"" if none comes in time or the process has ended.

        An empty message waits for what the process says by itself.
        """
        self.connection.settimeout(seconds)
        try:
            if message:  # one that has ended may still have said something
                self.connection.sendall(message)
            return self.connection.recv(4096)
        except OSError:
            return b""

    @property
    def lives(self) -> bool:
        """Return whether it runs. Before it is asked, only its end can be read."""
        has_ended = not self.is_borrowed and self.poll() is not None
        return not (has_ended or select.select([self.connection], [], [], 0)[0])

    @property
    def is_borrowed(self) -> bool:
        """Return whether another process started it: see `rapid.grading.standby`."""
        return os.getpid() != self._owner

    def release(self) -> None:
        """Close what a fork has inherited of its parent's worker, which ends with the parent."""
        self.connection.close()
        self.returncode = 0  # for Popen: nothing is left to wait for

    def end(self, patience: float = 0.0) -> None:
        """End it with all of its group, unless it ends itself within `patience` seconds.

        It should, because the connection closes.
        """
        self.started.discard(self)
        self.connection.close()
        if patience:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(patience)
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        remove_group(self.args)


class LineTooLong(ValueError):
    """A line is longer than its reader takes."""


class LineReader:
    """Reads lines, and counted bytes between them, from a socket.

    The other end may be hostile: no line is longer than `limit` bytes, and nothing is waited for
    beyond a `deadline`, which is a time of `time.monotonic`. Both methods raise TimeoutError then,
    and EOFError at the end.
    """

    def __init__(self, connection: socket.socket, limit: int):
        self._connection = connection
        self._limit = limit
        self._unread = bytearray()

    def read_line(self, deadline: float) -> bytes:
        """Return the next line without its end; raise LineTooLong where it is longer."""
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0 and len(self._unread) <= self._limit:
            searched = len(self._unread)
            self._receive(deadline)
        if end < 0 or end > self._limit:
            raise LineTooLong(f"a line of over {self._limit} bytes")
        # What is there already ends, too: there may be lines without end.
        if time.monotonic() > deadline:
            raise TimeoutError
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def read_bytes(self, count: int, deadline: float) -> bytes:
        """Return so many bytes, and drop what came behind them."""
        while len(self._unread) < count:
            self._receive(deadline)
        content = bytes(self._unread[:count])
        self._unread.clear()
        return content

    def _receive(self, deadline: float) -> None:
        if (seconds := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        self._connection.settimeout(seconds)
        try:
            chunk = self._connection.recv(CHUNK)
        except ConnectionError:
            chunk = b""
        if not chunk:
            raise EOFError
        self._unread += chunk
