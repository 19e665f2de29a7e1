"""Ends a process when its parent, its workflow, or the reader of its output ends.

Also tells a job's main process from its others, and describes the end of a process that was killed
by a signal.
"""

import ctypes
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, an option of Linux's prctl
WORKFLOW_VARIABLE = "RAPID_WORKFLOW"  # process id of the workflow that started this job


def is_main_process() -> bool:
    """Return whether this process writes the job's files.

    If the job has several processes, only the one of rank 0 does.
    """
    return int(os.environ.get("RANK", "0")) == 0


def describe_kill(signal_name: str) -> str:
    """Return "killed by SIGNAL", which for SIGKILL adds that memory may have run out.

    Linux sends SIGKILL to a process when the machine is out of memory.
    """
    if signal_name != "SIGKILL":
        return f"killed by {signal_name}"
    return (
        "killed by SIGKILL; if nobody sent this signal, the machine probably ran out of memory "
        "(see dmesg)"
    )


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Make Linux send this process the signal `number` when its parent ends; 0 means no signal."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, number)


def end_with_workflow() -> None:
    """If a workflow started this job, end the job when the workflow ends or is killed.

    The job gets SIGTERM, so that training can save a checkpoint.
    """
    # Removed from the environment, because the workflow is not the parent of the job's children.
    if workflow := os.environ.pop(WORKFLOW_VARIABLE, None):
        end_with_parent(signal.SIGTERM)
        if os.getppid() != int(workflow):  # the workflow ended before the line above
            sys.exit("rapid: the workflow that started this job has ended")


@contextmanager
def end_with_reader() -> Iterator[None]:
    """Exit silently if nobody reads standard output any more, as in `rapid ... | head`.

    The exit status is 141 as in shells: 128 plus the number of SIGPIPE.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _has_no_reader(sys.stdout.fileno()):  # another pipe broke
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        sys.exit(128 + signal.SIGPIPE)


def _has_no_reader(descriptor: int) -> bool:
    """Return whether a file descriptor is a pipe whose other end is closed."""
    pipe = select.poll()
    pipe.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in pipe.poll(0))
