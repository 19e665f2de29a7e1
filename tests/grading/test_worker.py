"""Worker processes: messages, liveness, their end, and the reading of lines."""

import os
import resource
import signal
import socket
import sys
import time
from contextlib import contextmanager

import pytest

from rapid.grading.memory_cgroups import limit_memory
from rapid.grading.worker import LineReader, LineTooLong, Worker
from tests.subprocesses import wait_for

# Sends the target of its standard output; `leads` says whether it leads a session.
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
def start_worker(script: str, **options):
    worker = Worker(limit_memory([sys.executable, "-S", "-c", script]), **options)
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_sends_a_greeting_and_ends_by_itself_when_told():
    with start_worker(GREETS + ENDS) as worker:
        assert worker.ask(b"", 60.0) == b"/dev/null"
        assert worker.is_alive
        worker.end(patience=60.0)
        assert worker.returncode == 7
        assert not worker.is_alive


def test_a_worker_that_has_ended_answers_with_nothing():
    with start_worker(GREETS + ECHOES) as worker:
        worker.ask(b"", 60.0)
        assert [worker.ask(message, 60.0) for message in (b"one", b"two", b"three")] == [
            b"one", b"", b""
        ]  # fmt: skip


def test_a_worker_can_answer_on_its_standard_output():
    with start_worker("import os; os.write(1, os.read(0, 9))", answers_on_stdout=True) as worker:
        assert worker.ask(b"hello\n", 60.0) == b"hello\n"


def test_output_written_before_the_end_of_a_worker_is_read():
    with start_worker("import os; os.write(1, b'bye')", answers_on_stdout=True) as worker:
        worker.wait(60)
        assert worker.ask(b"", 60.0) == b"bye"


def test_a_worker_can_have_a_file_descriptor_above_1023():
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard_limit), hard_limit))
    try:
        with start_worker(SILENT) as worker, worker.connection:
            worker.connection = socket.socket(fileno=os.dup2(worker.connection.fileno(), 1100))
            assert worker.is_alive
            worker.kill()
            wait_for(lambda: not worker.is_alive)
            worker.connection.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))


def test_a_command_without_a_memory_limit_is_refused():
    with pytest.raises(TypeError, match="not from limit_memory"):
        Worker([sys.executable, "-c", "pass"])


def test_a_question_to_a_silent_worker_times_out():
    with start_worker(SILENT) as worker:
        assert worker.ask(b"", 0.1) == b""
        assert worker.is_alive
        worker.end(patience=0.1)
        assert worker.returncode == -signal.SIGKILL


@pytest.mark.parametrize("sends_message", [True, False])
def test_a_worker_that_has_ended_or_sent_an_unrequested_message_is_not_alive(sends_message):
    """Its message could be taken for the answer to the next question."""
    with start_worker(GREETS + SILENT if sends_message else "") as worker:
        wait_for(lambda: not worker.is_alive)
        if not sends_message:
            worker.wait(60)
        assert (worker.poll() is None) == sends_message
        worker.end()
        assert worker.returncode == (-signal.SIGKILL if sends_message else 0)


class TestLineReader:
    @pytest.fixture
    def connection(self):
        far_end, near_end = socket.socketpair()
        with far_end, near_end:
            yield far_end, LineReader(near_end, limit=10)

    def test_lines_and_counted_bytes_are_read_in_order(self, connection):
        far_end, reader = connection
        deadline = time.monotonic() + 60
        far_end.sendall(b"one\n\n")
        assert [reader.read_line(deadline) for _ in range(2)] == [b"one", b""]
        far_end.sendall(b"0123456789\nab\ncnoise")
        assert reader.read_line(deadline) == b"0123456789"  # a line of the greatest length allowed
        assert reader.read_bytes(4, deadline) == b"ab\nc"
        far_end.sendall(b"next\nhalf")
        assert reader.read_line(deadline) == b"next"  # what follows the counted bytes is dropped
        far_end.close()
        with pytest.raises(EOFError):
            reader.read_line(deadline)

    @pytest.mark.parametrize("line", [b"0123456789a\n", b"0123456789a"])
    def test_a_line_over_the_limit_is_refused(self, connection, line):
        far_end, reader = connection
        far_end.sendall(line)
        with pytest.raises(LineTooLong):
            reader.read_line(time.monotonic() + 60)

    def test_reading_after_the_deadline_fails_even_if_data_is_there(self, connection):
        far_end, reader = connection
        far_end.sendall(b"one\ntwo\n")
        assert reader.read_line(time.monotonic() + 60) == b"one"
        with pytest.raises(TimeoutError):
            reader.read_line(time.monotonic() - 1)
        with pytest.raises(TimeoutError):
            reader.read_bytes(9, time.monotonic())

    def test_an_endless_trickle_of_bytes_ends_at_the_deadline(self, monkeypatch):
        """A byte arrives at each call, so no single wait of the system reaches the deadline."""

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
        for read_from in (
            lambda reader, deadline: reader.read_line(deadline),
            lambda reader, deadline: reader.read_bytes(1000, deadline),
        ):
            now = 0.0
            with pytest.raises(TimeoutError):
                read_from(LineReader(Trickle(), limit=1000), 20.0)
