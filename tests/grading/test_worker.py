"""A worker process: what it says, whether it lives, and how it ends."""

import signal
import sys
from contextlib import contextmanager

import pytest

from rapid.grading.worker import Worker
from tests.subprocesses import wait_for

# Says where its input and output go, and that it leads a session.
GREETS = """
import os, socket, sys
asked = socket.socket(fileno=int(sys.argv[1]))
own = os.getsid(0) == os.getpid()
asked.send(" ".join([os.readlink("/proc/self/fd/0"), os.readlink("/proc/self/fd/1")]).encode())
"""
ENDS = "asked.recv(1)\nos._exit(7 if own else 8)"
SILENT = "while True: __import__('time').sleep(9)"


@contextmanager
def worker(script: str):
    one = Worker(lambda fd: [sys.executable, "-S", "-c", script, str(fd)], 512)
    try:
        yield one
    finally:
        one.kill()
        one.wait()


def test_a_worker_greets_and_ends_itself_when_it_is_let():
    with worker(GREETS + ENDS) as one:
        assert one.greeting(60.0) == b"/dev/null /dev/null"
        assert one.lives
        one.end(patience=60.0)
        assert one.returncode == 7
        assert not one.lives


def test_a_silent_worker_is_not_waited_for():
    with worker(SILENT) as one:
        assert one.greeting(0.1) == b""
        assert one.lives
        one.end(patience=0.1)
        assert one.returncode == -signal.SIGKILL


@pytest.mark.parametrize("says", [True, False])
def test_a_worker_that_ended_or_speaks_unasked_does_not_live(says):
    """What it says could be taken for the answer to the next question."""
    with worker(GREETS + SILENT if says else "") as one:
        wait_for(lambda: not one.lives)
        if not says:
            one.wait(60)
        assert (one.poll() is None) == says
        one.end()
        assert one.returncode == (-signal.SIGKILL if says else 0)
