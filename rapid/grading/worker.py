"""A process that works for a grader and is asked over a socket."""

import contextlib
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable

from rapid.grading.limits import limited, remove_group


class Worker(subprocess.Popen):
    """A process with limited memory, and the `connection` to it. It speaks only when asked.

    It leads a session of its own: Ctrl-C is for the grader, which then ends it.

    Args:
        command: makes the command line, given the file descriptor of the process's socket.
        memory_mb: limit on its memory, 1e6 bytes.
        options: for `subprocess.Popen`.
    """

    def __init__(self, command: Callable[[int], list[str]], memory_mb: int, **options):
        self._owner = os.getpid()
        self.connection, theirs = socket.socketpair()
        with theirs:
            super().__init__(
                limited(command(theirs.fileno()), memory_mb),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                **options,
            )

    def greeting(self, seconds: float) -> bytes:
        """Return the first thing it says, when it is ready; b"" if that is nothing."""
        self.connection.settimeout(seconds)
        try:
            return self.connection.recv(4096)
        except OSError:
            return b""

    @property
    def lives(self) -> bool:
        """Return whether it runs. Before it is asked, only its end can be read."""
        ended = not self.is_borrowed and self.poll() is not None
        return not (ended or select.select([self.connection], [], [], 0)[0])

    @property
    def is_borrowed(self) -> bool:
        """Return whether another process started it: see `rapid.grading.standby`."""
        return os.getpid() != self._owner

    def end(self, patience: float = 0.0) -> None:
        """End it with all of its group, unless it ends itself within `patience` seconds.

        It should, because the connection closes.
        """
        self.connection.close()
        if patience:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(patience)
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        remove_group(self.args)
