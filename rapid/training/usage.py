"""CPU time that a run used, and time that it lost to other processes on its cores."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

PROC = Path("/proc")
# A run counts as disturbed if it lost more than this share of its time outside grading to other
# processes. Jobs that start on other cores take less than this share, and a program that computes
# on the same core takes half of the time.
MAX_LOST_SHARE = 0.2


class Usage(NamedTuple):
    """Seconds of CPU time used, and of time lost (0 if the system does not report lost time)."""

    cpu: float  # CPU time of this process and all its descendants
    waited: float  # time in which the main thread was ready to run, but waited for its core
    stolen: float  # time in which the hypervisor gave a core to other machines: mean over cores

    @classmethod
    def now(cls, proc: Path = PROC) -> "Usage":
        """Return the seconds since this process started; `stolen` since the machine started."""
        return cls(_sum_cpu_seconds(), read_waited_seconds(proc), _read_stolen_seconds(proc))

    def since(self, begin: "Usage") -> "Usage":
        """Return the differences between an earlier `Usage` and this one."""
        return Usage(*(now - then for now, then in zip(self, begin, strict=True)))

    def is_disturbed(self, seconds: float, grading: float = 0.0) -> bool:
        """Return whether other processes took more than `MAX_LOST_SHARE` of the time.

        Args:
            seconds: wall-clock time of the run.
            grading: the part of `seconds` spent in grading. The caller subtracts from `waited` what
                the main thread waited during grading.
        """
        without_grading = seconds - grading
        if without_grading <= 0:
            return False
        return self.waited / without_grading + self.stolen / seconds > MAX_LOST_SHARE


def read_waited_seconds(proc: Path = PROC) -> float:
    """Return the seconds in which the main thread was ready to run, but waited for its core.

    Time lost during grading has to be subtracted, because then the core may be in use by the run's
    own grader, which has sent its verdict, but does not sleep yet.
    """
    with suppress(OSError):
        return int((proc / "self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _sum_cpu_seconds() -> float:
    """Return the CPU time of this process and its descendants, seconds."""
    this_process, seconds = psutil.Process(), 0.0
    for process in (this_process, *this_process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])  # user, system, and those of ended children
    return seconds


def _read_stolen_seconds(proc: Path) -> float:
    """Return the steal time of this process's cores since the machine started: mean, seconds."""
    with suppress(OSError):
        rows = map(str.split, (proc / "stat").read_text().splitlines())
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        ticks = sum(int(row[8]) for row in rows if row[0] in cores)
        return ticks / len(cores) / os.sysconf("SC_CLK_TCK")
    return 0.0
