"""Processes that work for graders: starts them, sends them requests over a socket, ends them."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from typing import ClassVar
from weakref import WeakSet

from rapid.grading.memory_cgroups import LimitedCommand, remove_group

CHUNK = 1 << 18  # bytes read from a socket at a time


class Worker(subprocess.Popen):
    """A process whose standard input is a socket. `connection` is the grader's end of the socket.

    The process leads its own session, so Ctrl-C reaches the grader only, which then ends the
    process.

    Args:
        command: the command line from `memory_cgroups.limit_memory`, so that its memory is limited.
        answers_on_stdout: whether standard output is the socket too. Otherwise it is discarded.
        options: for `subprocess.Popen`.

    Raises:
        TypeError: `command` is not from `limit_memory`.
    """

    # The running workers that were started by this process, or by one that it was forked from.
    started: ClassVar[WeakSet["Worker"]] = WeakSet()
    # Whether its owner, the process that started it, lends it to forked processes: see
    # `rapid.grading.standby`.
    is_lent_to_forks = False

    def __init__(self, command: LimitedCommand, answers_on_stdout: bool = False, **options):
        if not isinstance(command, LimitedCommand):
            raise TypeError(f"the command is not from limit_memory: {command}")
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
        """Send a message and return the answer, at most 4096 bytes.

        Returns b"" if there is no answer within `seconds` or the process has ended. If `message` is
        empty, nothing is sent, and the process's next message is returned.
        """
        self.connection.settimeout(seconds)
        try:
            if message:  # sendall(b"") could raise although an answer can still be read
                self.connection.sendall(message)
            return self.connection.recv(4096)
        except OSError:
            return b""

    @property
    def is_alive(self) -> bool:
        """Return whether the process runs. Call this between requests only.

        Between requests the process sends nothing, so a readable socket means that it has ended.
        """
        has_ended = not self.is_borrowed and self.poll() is not None
        if has_ended:
            return False
        events = select.poll()  # select.select takes no file descriptor above 1023
        events.register(self.connection, select.POLLIN)
        return not events.poll(0)

    @property
    def is_borrowed(self) -> bool:
        """Return whether another process than the present one started this worker.

        See `rapid.grading.standby`.
        """
        return os.getpid() != self._owner

    def release(self) -> None:
        """Close a fork's copy of the connection. The worker goes on to work for the parent."""
        self.connection.close()
        self.returncode = 0  # for Popen: nothing is left to wait for

    def end(self, patience: float = 0.0) -> None:
        """Close the connection, which should end the process, and wait for its end.

        A process that has not ended within `patience` seconds is killed, with its process group.
        """
        self.started.discard(self)
        with contextlib.suppress(OSError):  # wakes a thread that reads; `close` would not
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        if patience:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(patience)
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        remove_group(self.args)  # the memory cgroup of `limit_memory`


class LineTooLong(ValueError):
    """A line is longer than the limit of its `LineReader`."""


class LineReader:
    """Reads lines and blocks of bytes from a socket whose other end may be hostile.

    Args:
        connection: the socket.
        limit: maximum length of a line in bytes.

    Both methods take a `deadline`, a time of `time.monotonic`. They raise TimeoutError at the
    deadline, and EOFError if the other end closes the socket.
    """

    def __init__(self, connection: socket.socket, limit: int):
        self._connection = connection
        self._limit = limit
        self._unread = bytearray()

    def read_line(self, deadline: float) -> bytes:
        """Return the next line without its newline; raise LineTooLong if it exceeds the limit."""
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0 and len(self._unread) <= self._limit:
            searched = len(self._unread)
            self._receive(deadline)
        if end < 0 or end > self._limit:
            raise LineTooLong(f"a line of over {self._limit} bytes")
        # Checked even if the line had arrived already: the other end could send lines for ever.
        if time.monotonic() > deadline:
            raise TimeoutError
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def read_bytes(self, count: int, deadline: float) -> bytes:
        """Return the next `count` bytes, and drop the bytes after them that have arrived."""
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
