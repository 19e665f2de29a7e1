"""Measures free memory of a device, and finds the largest micro-batch that fits.

A micro-batch is the completions of one forward and backward pass. Its memory is measured in trial
passes before training. Trainers also halve micro-batches when memory runs out later, for example
because other processes have started.
"""

import math
import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import torch
from accelerate.utils.memory import clear_device_cache

AUTO = "auto"  # value of settings for the size of micro-batches: find it by trial passes
USABLE_SHARE = 0.92  # of free memory; the rest is for fragmentation and libraries
OUT_OF_MEMORY_PATTERN = (
    "out of memory|CUBLAS_STATUS_ALLOC_FAILED|can.t allocate memory|not enough memory|bad_alloc"
)
CGROUPS = Path("/sys/fs/cgroup")
# Linux: writing 5 to this file resets VmHWM, the process's peak of resident memory.
PEAK_RESET_FILE = Path("/proc/self/clear_refs")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, on a GPU or in main memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(
        re.search(OUT_OF_MEMORY_PATTERN, str(error), re.IGNORECASE)
    )


@contextmanager
def advise_if_out_of_memory(advice: str) -> Iterator[None]:
    """Add advice to the error that is raised if memory runs out within the context."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            error.add_note(advice)
        raise


def get_available_memory(device: torch.device) -> float:
    """Return the bytes that this process can still allocate on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # Memory that torch has reserved on the device, and that no tensor uses.
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + cached
    limits = [psutil.virtual_memory().available, _get_available_in_cgroup()]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        limits.append(limit - psutil.Process().memory_info().vms)
    return max(0.0, min(limits))


def get_total_memory(device: torch.device) -> float:
    """Return the bytes of a GPU's memory, or of the main memory that this process may use."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    limits = [psutil.virtual_memory().total, *_read_cgroup_limits().values()]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return float(min(limits if limit == resource.RLIM_INFINITY else [*limits, limit]))


def _get_available_in_cgroup() -> float:
    """Return the free bytes of this process's cgroup (v2), or of a parent that has less.

    The result is infinity if none of them has a limit.
    """
    available = math.inf
    for group, limit in _read_cgroup_limits().items():
        with suppress(OSError, ValueError):
            used = int((group / "memory.current").read_text())
            stat = (group / "memory.stat").read_text()
            # This part of the page cache is dropped when memory is needed.
            files = re.search(r"^inactive_file (\d+)", stat, re.MULTILINE)
            available = min(available, limit - used + (int(files[1]) if files else 0))
    return available


def _read_cgroup_limits() -> dict[Path, int]:
    """Return the limit of this process's cgroup (v2) and of each parent that has one, bytes."""
    limits = {}
    with suppress(OSError):
        folder = CGROUPS / _read_group_name()
        for group in (folder, *folder.parents):
            with suppress(OSError, ValueError):  # ValueError: memory.max is "max", without a limit
                limits[group] = int((group / "memory.max").read_text())
            if group == CGROUPS:
                break
    return limits


def _read_group_name() -> str:
    """Return the path of this process's cgroup (v2) below `CGROUPS`."""
    return Path("/proc/self/cgroup").read_text().strip().rpartition("::/")[2]


def measure_peak(device: torch.device, work: Callable[[], None]) -> float:
    """Call `work`, and return the peak of memory minus the memory held before, bytes."""
    reset_peak(device)
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    before = read_resident_memory("VmRSS")
    work()
    return read_resident_memory("VmHWM") - before


def reset_peak(device: torch.device) -> None:
    """Reset the recorded peak of memory, of a GPU or of main memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        PEAK_RESET_FILE.write_text("5", encoding="utf-8")


def read_peak(device: torch.device) -> int | None:
    """Return the peak of memory since the last reset, bytes: reserved on a GPU, else resident.

    None if the system does not report it.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    return read_resident_memory("VmHWM") if PEAK_RESET_FILE.exists() else None


def read_resident_memory(field: str) -> int:
    """Return this process's resident memory, bytes: now (VmRSS), or its peak (VmHWM)."""
    status = Path(f"/proc/{os.getpid()}/status").read_text(encoding="utf-8")
    (kibibytes,) = re.findall(rf"{field}:\s+(\d+)", status)
    return 1024 * int(kibibytes)


def find_largest_batch(
    attempt: Callable[[int, float], None], at_most: int, device: torch.device, reserved: float = 0.0
) -> int:
    """Return how many completions of full length, at most `at_most`, fit in a micro-batch.

    The memory of a completion is estimated as twice the difference between trial passes of full and
    of half length, because memory that does not depend on the length cancels out in the difference.
    The estimated number of completions is tried, and halved until it fits.

    Args:
        attempt: runs a forward and a backward pass; its arguments are the number of completions and
            their length as a share of the full length.
        reserved: bytes that will be allocated for other purposes.

    Raises:
        MemoryError: not even one completion fits.
        ValueError: the system does not report a process's peak of memory.
    """
    if device.type != "cuda" and not PEAK_RESET_FILE.exists():
        raise ValueError(
            f"micro_batch: {AUTO} (in a script micro_batch_size={AUTO!r} or token_budget={AUTO!r}) "
            f"needs {PEAK_RESET_FILE}, which this system does not have: set a number instead"
        )
    available = USABLE_SHARE * (get_available_memory(device) - reserved)

    def measure_bytes(count: int, share: float = 1.0) -> float:
        """Return the bytes that `count` completions take; infinity if they do not fit."""
        try:
            return measure_peak(device, lambda: attempt(count, share))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        clear_device_cache(garbage_collection=True)
        return math.inf

    measure_bytes(1, 0.5)  # the first pass includes what libraries allocate once: ignore it
    half_bytes, whole_bytes = measure_bytes(1, 0.5), measure_bytes(1)
    if whole_bytes > available:
        needed = (
            "more memory than there is"
            if whole_bytes == math.inf
            else f"{whole_bytes / 1e9:.2f} GB"
        )
        left = max(0.0, available) / 1e9  # below 0 if not even the reserved memory is there
        raise MemoryError(f"one completion of full length needs {needed}; {left:.2f} GB are left")
    per_completion = max(2 * (whole_bytes - half_bytes), 1.0)
    count = max(1, min(at_most, 1 + int((available - whole_bytes) / per_completion)))
    while count > 1 and measure_bytes(count) > available:
        count //= 2
    clear_device_cache(garbage_collection=True)
    reset_peak(device)  # so that the reported peak of a run does not include the trial passes
    return count
