"""What a process of a job knows of the others."""

import ctypes
import os
import signal
import sys

PARENT_DEATH_SIGNAL = 1  # of prctl


def is_main() -> bool:
    """Return whether this process is the one of a job's that writes files."""
    return int(os.environ.get("RANK", "0")) == 0


def end_with_parent() -> None:
    """Let this process end when the one that started it does, however that ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
