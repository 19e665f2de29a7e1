"""What a process of a job knows of the others."""

import ctypes
import os
import signal
import sys
from pathlib import Path

from rapid.machine.lease import usable_cores

PARENT_DEATH_SIGNAL = 1  # of prctl


def is_main() -> bool:
    """Return whether this process is the one of a job's that writes files."""
    return int(os.environ.get("RANK", "0")) == 0


def end_with_parent() -> None:
    """Let this process end when the one that started it does, however that ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def stolen_seconds(path: Path = Path("/proc/stat")) -> float:
    """Return how long, since its start, the machine was denied the cores of this process.

    That is time in which a hypervisor let other virtual machines run; 0 where it is not counted.
    """
    try:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return 0.0
    ours = {f"cpu{core}" for core in usable_cores()}
    ticks = sum(int(row[8]) for row in rows if row and row[0] in ours)
    return ticks / os.sysconf("SC_CLK_TCK")
