"""CPU time that a run used, and time that it lost to other processes on its cores."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

PROC = Path("/proc")
# Share of a run's time, without grading, that it may lose to other processes before its runtime
# counts as disturbed. Jobs that start on other cores take less. A program that computes on the same
# core takes half.
MAX_LOST_SHARE = 0.2


class Usage(NamedTuple):
    """CPU time used and time lost, seconds. Lost time is 0 on systems that do not report it."""

    cpu: float  # used by this process and all its descendants
    waited: float  # in which the main thread was ready to run, but its core ran something else
    stolen: float  # in which a hypervisor gave a core to other virtual machines: mean over cores

    @classmethod
    def now(cls, proc: Path = PROC) -> "Usage":
        """Return the seconds since this process started; `stolen` since the machine started."""
        return cls(_cpu(), waited(proc), _stolen(proc))

    def since(self, begin: "Usage") -> "Usage":
        """Return the seconds between an earlier `Usage` and this one."""
        return Usage(*(now - then for now, then in zip(self, begin, strict=True)))

    def is_disturbed(self, seconds: float, grading: float = 0.0) -> bool:
        """Return whether other processes took more than `MAX_LOST_SHARE` of the time.

        Args:
            seconds: wall-clock time to which this usage belongs.
            grading: the part of `seconds` spent in grading, which `waited` must not include.
        """
        # `waited` is measured outside grading, `stolen` over the whole time.
        computing = seconds - grading
        return computing > 0 and self.waited / computing + self.stolen / seconds > MAX_LOST_SHARE


def waited(proc: Path = PROC) -> float:
    """Return the seconds in which the main thread was ready, but its core ran something else.

    While the run grades, this something may be its own grader, which has sent its answer and has
    not yet gone to sleep.
    """
    with suppress(OSError):
        return int((proc / "self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _cpu() -> float:
    """Return the CPU time of this process and its descendants, seconds."""
    main, used = psutil.Process(), 0.0
    for process in (main, *main.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            used += sum(process.cpu_times()[:4])  # user and system, own and of ended children
    return used


def _stolen(proc: Path) -> float:
    """Return the steal time of this process's cores since the machine started: mean, seconds."""
    with suppress(OSError):
        rows = map(str.split, (proc / "stat").read_text().splitlines())
        ours = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        ticks = sum(int(row[8]) for row in rows if row[0] in ours)
        return ticks / len(ours) / os.sysconf("SC_CLK_TCK")
    return 0.0
