"""End processes with their parent, their workflow or their reader."""

import ctypes
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PARENT_DEATH_SIGNAL = 1  # of prctl
# Ends messages on killed processes.
KILLED_HINT = "; if nobody did that, the machine ran out of memory (see dmesg)"
WORKFLOW_VARIABLE = "RAPID_WORKFLOW"  # process id of the workflow that started this job


def is_main_process() -> bool:
    """Return whether this is the one process of its job that writes files."""
    return int(os.environ.get("RANK", "0")) == 0


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Have Linux send this process a signal when its parent ends or is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, number)


def end_with_workflow() -> None:
    """End this job when the workflow that started it ends or is killed, if a workflow started it.

    The job gets SIGTERM, so that training can save a checkpoint.
    """
    if workflow := os.environ.pop(WORKFLOW_VARIABLE, None):
        end_with_parent(signal.SIGTERM)
        if os.getppid() != int(workflow):
            sys.exit("rapid: the workflow that started this job has ended")


@contextmanager
def end_with_reader() -> Iterator[None]:
    """Exit silently if nobody reads standard output any more, as in `rapid ... | head`.

    The exit status is that of shells: 141, which is 128 plus the number of SIGPIPE.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _has_no_reader(sys.stdout.fileno()):  # the error is of another pipe
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at exit
        sys.exit(128 + signal.SIGPIPE)


def _has_no_reader(descriptor: int) -> bool:
    pipe = select.poll()
    pipe.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in pipe.poll(0))
