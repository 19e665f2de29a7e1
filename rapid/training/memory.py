"""Memory that a device has left, and the largest micro-batch within it.

A limit on a process's memory may be lowered while it runs, and other processes come and go. A size
is tried before it is relied on, and a micro-batch that fails all the same is made smaller.
"""

import gc
import math
import os
import re
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import torch

AUTO = "auto"  # the size of micro-batches, where memory is to decide
USABLE = 0.92  # of what is left: fragments, and what libraries take now and then, need the rest
OUT_OF_MEMORY_PATTERN = (
    "out of memory|CUBLAS_STATUS_ALLOC_FAILED|can.t allocate memory|not enough memory|bad_alloc"
)
CGROUPS = Path("/sys/fs/cgroup")
RESET = Path("/proc/self/clear_refs")  # of Linux: a 5 in it lets VmHWM begin anew


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, on a GPU or in main memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(
        re.search(OUT_OF_MEMORY_PATTERN, str(error), re.IGNORECASE)
    )


def release_memory() -> None:
    """Give back what no tensor uses, after a micro-batch that failed."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def available_memory(device: torch.device) -> float:
    """Return the bytes that this process can still take on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + cached
    limits = [psutil.virtual_memory().available, _available_in_cgroup()]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        limits.append(limit - psutil.Process().memory_info().vms)
    return max(0.0, min(limits))


def _available_in_cgroup() -> float:
    """Return the bytes that are left of this process's cgroup (v2) and those around it."""
    available = math.inf
    with suppress(OSError):
        name = Path("/proc/self/cgroup").read_text().strip().rpartition("::/")[2]
        folder = CGROUPS / name
        for group in (folder, *folder.parents):
            with suppress(OSError, ValueError):  # "max"
                limit = int((group / "memory.max").read_text())
                used = int((group / "memory.current").read_text())
                stat = (group / "memory.stat").read_text()
                files = re.search(r"^inactive_file (\d+)", stat, re.MULTILINE)  # can be dropped
                left_in_group = limit - used + (int(files[1]) if files else 0)
                available = min(available, left_in_group)
            if group == CGROUPS:
                break
    return available


def measure_peak(device: torch.device, work: Callable[[], None]) -> float:
    """Return the bytes that were held at most during some work, beyond those before it."""
    reset_peak(device)
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    before = _resident("VmRSS")
    work()
    return _resident("VmHWM") - before


def reset_peak(device: torch.device) -> None:
    """Let the peak of what is held begin anew, on a GPU or in main memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        RESET.write_text("5", encoding="utf-8")


def _resident(field: str) -> int:
    status = Path(f"/proc/{os.getpid()}/status").read_text(encoding="utf-8")
    (kibibytes,) = re.findall(rf"{field}:\s+(\d+)", status)
    return 1024 * int(kibibytes)


def find_largest_batch(
    attempt: Callable[[int, float], None], at_most: int, device: torch.device, reserved: float = 0.0
) -> int:
    """Return how many completions, at most `at_most`, fit in a micro-batch in the memory left.

    What a completion takes is the difference between half a completion and a whole one. The number
    that follows is tried, and halved until it fits.

    Args:
        attempt: runs so many completions forward and backward, of this share of the full length.
        reserved: bytes that something else will take.

    Raises:
        MemoryError: not even one fits.
        ValueError: this system does not tell what a process holds.
    """
    if device.type != "cuda" and not RESET.exists():
        raise ValueError(f"{AUTO!r} reads {RESET}, which this system has not: set a number instead")
    available = USABLE * (available_memory(device) - reserved)

    def needs(count: int, share: float = 1.0) -> float:
        """Return the bytes that so many take; infinity if they do not fit."""
        try:
            return measure_peak(device, lambda: attempt(count, share))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        release_memory()
        return math.inf

    needs(1, 0.5)  # the first has what libraries allocate once
    half_bytes, whole_bytes = needs(1, 0.5), needs(1)
    if whole_bytes > available:
        held = "more than there is" if whole_bytes == math.inf else f"{whole_bytes / 1e9:.2f} GB"
        raise MemoryError(
            f"one completion of full length takes {held}, and {available / 1e9:.2f} GB are left"
        )
    per_completion = max(2 * (whole_bytes - half_bytes), 1.0)
    count = max(1, min(at_most, 1 + int((available - whole_bytes) / per_completion)))
    while count > 1 and needs(count) > available:
        count //= 2
    release_memory()
    reset_peak(device)  # which is to be of what a run takes, not of what was tried
    return count
