"""What a process of a job knows of the others."""

import ctypes
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PARENT_DEATH_SIGNAL = 1  # of prctl
KILLED = "; if nobody did that, memory ran out: see dmesg"  # follows what killed a process
WORKFLOW = "RAPID_WORKFLOW"  # names the process that started a job's, for that job alone


def is_main() -> bool:
    """Return whether this process is the one of a job's that writes files."""
    return int(os.environ.get("RANK", "0")) == 0


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Let this process get a signal when the one that started it ends, however it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, number)


def end_with_workflow() -> None:
    """Let a job end with the workflow that started it, however that ends; others go on.

    It is told to end (SIGTERM), so that one that trains can save.
    """
    if workflow := os.environ.pop(WORKFLOW, None):
        end_with_parent(signal.SIGTERM)
        if os.getppid() != int(workflow):
            sys.exit("rapid: the workflow that started this job has ended")


@contextmanager
def end_with_reader() -> Iterator[None]:
    """End without a word where nobody reads standard output any more, as in `rapid ... | head`.

    The exit status is the one that shells have for that: 141, 128 and the number of SIGPIPE.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _has_no_reader(sys.stdout.fileno()):  # it was another pipe
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        sys.exit(128 + signal.SIGPIPE)


def _has_no_reader(file: int) -> bool:
    pipe = select.poll()
    pipe.register(file, 0)
    return any(events & select.POLLERR for _, events in pipe.poll(0))
