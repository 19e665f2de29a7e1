"""CPU time of a run, and time that other processes took from it."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

PROC = Path("/proc")
# Share of its time, grading apart, that a run may lose: more than jobs that start beside it take,
# less than the half that a program takes which computes on the same core.
MAX_LOST_SHARE = 0.2


class Usage(NamedTuple):
    """Seconds of CPU time, and those that were lost. Where a system does not count, they are 0."""

    cpu: float  # of this process and all its descendants
    waited: float  # in which the main thread could have run, but something else did
    stolen: float  # in which a hypervisor let other virtual machines have a core, as a mean of ours

    @classmethod
    def now(cls, proc: Path = PROC) -> "Usage":
        """Return the seconds since this process began; stolen ones since the machine did."""
        return cls(_cpu(), waited(proc), _stolen(proc))

    def since(self, begin: "Usage") -> "Usage":
        """Return the seconds from an earlier time to this one."""
        return Usage(*(now - then for now, then in zip(self, begin, strict=True)))

    def disturbed(self, seconds: float, grading: float = 0.0) -> bool:
        """Return whether others took so much of this time that it is too long.

        Args:
            grading: seconds of it in which it graded, where `waited` is not counted.
        """
        computing = seconds - grading
        return computing > 0 and self.waited / computing + self.stolen / seconds > MAX_LOST_SHARE


def waited(proc: Path = PROC) -> float:
    """Return in how many seconds the main thread could have run, but something else did.

    While it grades, that may be a grader of its own, which has answered and is yet to go to sleep.
    """
    with suppress(OSError):
        return int((proc / "self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _cpu() -> float:
    main, used = psutil.Process(), 0.0
    for process in (main, *main.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            used += sum(process.cpu_times()[:4])  # user, system; those of children that ended
    return used


def _stolen(proc: Path) -> float:
    with suppress(OSError):
        rows = map(str.split, (proc / "stat").read_text().splitlines())
        ours = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        ticks = sum(int(row[8]) for row in rows if row[0] in ours)
        return ticks / len(ours) / os.sysconf("SC_CLK_TCK")
    return 0.0
