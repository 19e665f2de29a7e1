"""What a process of a job knows of the others."""

import ctypes
import os
import signal
import sys

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
