"""A worker process: what it says, whether it lives, how it ends, and how its lines are read."""

import signal
import socket
import sys
import time
from contextlib import contextmanager

import pytest

from rapid.grading.memory import limit_memory
from rapid.grading.worker import LineReader, LineTooLong, Worker
from tests.subprocesses import wait_for

# Says where its output goes, and that it leads a session.
GREETS = """
import os, socket
control = socket.socket(fileno=0)
leads = os.getsid(0) == os.getpid()
control.send(os.readlink("/proc/self/fd/1").encode())
"""
ENDS = "control.recv(1)\nos._exit(7 if leads else 8)"
ECHOES = "control.send(control.recv(9))\ncontrol.recv(9)"
SILENT = "while True: __import__('time').sleep(9)"


@contextmanager
def started(script: str, **options):
    worker = Worker(limit_memory([sys.executable, "-S", "-c", script]), **options)
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_greets_and_ends_itself_when_it_is_let():
    with started(GREETS + ENDS) as worker:
        assert worker.ask(b"", 60.0) == b"/dev/null"
        assert worker.lives
        worker.end(patience=60.0)
        assert worker.returncode == 7
        assert not worker.lives


def test_a_worker_answers_a_message_until_it_has_ended():
    with started(GREETS + ECHOES) as worker:
        worker.ask(b"", 60.0)
        assert [worker.ask(message, 60.0) for message in (b"one", b"two", b"three")] == [
            b"one", b"", b""
        ]  # fmt: skip


def test_the_standard_output_of_a_worker_may_be_its_socket():
    with started("import os; os.write(1, os.read(0, 9))", answers_on_stdout=True) as worker:
        assert worker.ask(b"hello\n", 60.0) == b"hello\n"


def test_the_last_words_of_a_worker_are_heard():
    with started("import os; os.write(1, b'bye')", answers_on_stdout=True) as worker:
        worker.wait(60)
        assert worker.ask(b"", 60.0) == b"bye"


def test_no_worker_is_started_whose_memory_is_not_limited():
    with pytest.raises(TypeError, match="cannot be limited"):
        Worker([sys.executable, "-c", "pass"])


def test_a_silent_worker_is_not_waited_for():
    with started(SILENT) as worker:
        assert worker.ask(b"", 0.1) == b""
        assert worker.lives
        worker.end(patience=0.1)
        assert worker.returncode == -signal.SIGKILL


@pytest.mark.parametrize("speaks", [True, False])
def test_a_worker_that_ended_or_speaks_unasked_does_not_live(speaks):
    """What it says could be taken for the answer to the next question."""
    with started(GREETS + SILENT if speaks else "") as worker:
        wait_for(lambda: not worker.lives)
        if not speaks:
            worker.wait(60)
        assert (worker.poll() is None) == speaks
        worker.end()
        assert worker.returncode == (-signal.SIGKILL if speaks else 0)


class TestLineReader:
    @pytest.fixture
    def ends(self):
        far_end, near_end = socket.socketpair()
        with far_end, near_end:
            yield far_end, LineReader(near_end, limit=10)

    def test_lines_and_counted_bytes_are_read_in_their_order(self, ends):
        far_end, reader = ends
        deadline = time.monotonic() + 60
        far_end.sendall(b"one\n\n")
        assert [reader.read_line(deadline) for _ in range(2)] == [b"one", b""]
        far_end.sendall(b"0123456789\nab\ncnoise")
        assert reader.read_line(deadline) == b"0123456789"  # as long as it may be
        assert reader.read_bytes(4, deadline) == b"ab\nc"
        far_end.sendall(b"next\nhalf")
        assert reader.read_line(deadline) == b"next"  # what came behind the bytes is dropped
        far_end.close()
        with pytest.raises(EOFError):
            reader.read_line(deadline)

    @pytest.mark.parametrize("sent", [b"0123456789a\n", b"0123456789a"])
    def test_a_line_that_is_too_long_is_not_read(self, ends, sent):
        far_end, reader = ends
        far_end.sendall(sent)
        with pytest.raises(LineTooLong):
            reader.read_line(time.monotonic() + 60)

    def test_nothing_is_read_after_the_deadline_even_if_it_is_there(self, ends):
        far_end, reader = ends
        far_end.sendall(b"one\ntwo\n")
        assert reader.read_line(time.monotonic() + 60) == b"one"
        with pytest.raises(TimeoutError):
            reader.read_line(time.monotonic() - 1)
        with pytest.raises(TimeoutError):
            reader.read_bytes(9, time.monotonic())

    def test_bytes_that_never_stop_coming_end_at_the_deadline(self, monkeypatch):
        """One arrives at each call: a wait of the system's never ends in time."""

        class Trickle:
            def settimeout(self, seconds):
                assert seconds > 0

            def recv(self, count):
                return b"x"

        now = 0.0

        def tick():
            nonlocal now
            now += 1
            return now

        monkeypatch.setattr("rapid.grading.worker.time.monotonic", tick)
        for read in (
            lambda reader, deadline: reader.read_line(deadline),
            lambda reader, deadline: reader.read_bytes(1000, deadline),
        ):
            now = 0.0
            with pytest.raises(TimeoutError):
                read(LineReader(Trickle(), limit=1000), 20.0)
