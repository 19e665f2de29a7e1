"""Leases each core and GPU to one job at a time, so that runtimes of parallel jobs are comparable.

Every job that does computations leases its cores and GPUs before it imports large packages. A
lease is a lock on a file; there is one file for each core and GPU. The operating system releases
the lock when the process ends or is killed. The job and all processes that it starts (sampling,
grading, Lean) are bound to the leased cores and see only the leased GPUs. So no two jobs share a
core or GPU. A job waits until enough are free, and its runtime does not include that time.

All pipelines of a user on a machine share the lock files, which are in the temporary folder.
Machines that share their temporary folder have lock files of their own.
Containers and SLURM jobs with a temporary folder of their own do not see each other's leases. A job
leases only cores that it may run on and GPUs in CUDA_VISIBLE_DEVICES; SLURM sets both. macOS cannot
bind processes to cores, but leases limit the number of concurrent jobs there too.
"""

import contextlib
import ctypes
import os
import platform
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from filelock import FileLock, Timeout

from rapid.artifacts.files import BadInput
from rapid.resources.gpus import LISTING_ADVICE, VISIBLE_DEVICES, list_visible_gpus
from rapid.resources.wait_policy import choose_thread_wait_policy

# Referenced until the process ends, because a FileLock that is garbage-collected releases its lock.
_held_locks: list[FileLock] = []
POLL_SECONDS = 0.2  # interval between attempts to get a lock
# How long `lock_folder` waits for the lock on a run's folder: the processes of a killed job may
# still hold the lock for a moment.
FOLDER_LOCK_SECONDS = 2.0
WAITING = "waiting until "  # beginning of the line that a waiting job writes to its log
# Only one job at a time gathers locks (`_lease_locks`), which takes less than this time if enough
# are free. A job that still cannot begin to gather after this time prints that it waits.
GATHERING_SECONDS = 1.0
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of glibc's mallopt


def list_usable_cores() -> list[int]:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def lease_cores(count: int, threads: int | None = None) -> list[int]:
    """Wait for `count` free cores, lease them until the process ends, and bind the process to them.

    Args:
        threads: number of torch's threads; by default `count`.

    Returns:
        The numbers of the leased cores.

    Raises:
        BadInput: the machine has fewer than `count` cores.
    """
    cores = list_usable_cores()
    if count > len(cores):
        raise BadInput(
            f"{count} cores are needed, but this machine (or this SLURM job) has {len(cores)}: "
            "lower compute.threads or compute.processes"
        )
    leased = _lease_locks("core", [f"core{core}" for core in cores], count)
    leased_cores = [cores[index] for index in leased]
    choose_thread_wait_policy(leased_cores, threads or count)  # before torch is imported
    return bind_to_cores(leased_cores, threads or count)


def bind_to_cores(cores: list[int], threads: int) -> list[int]:
    """Bind this process and its future children to cores; return `cores`.

    Also sets the number of torch's threads, and makes malloc keep freed memory.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    _keep_freed_memory()
    # In a child of the fork server (`rapid.processes.fork_server`) torch is imported already, and
    # has read OMP_NUM_THREADS.
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    return cores


def _keep_freed_memory() -> None:
    """Make glibc's malloc keep freed memory for this process; do nothing with other C libraries.

    By default malloc returns the memory of freed tensors to Linux, which has to clear the pages of
    the next tensors. That takes a tenth of the time of a training step.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        # Large blocks come from the heap, and the heap is not trimmed.
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def lease_gpus(count: int) -> list[str]:
    """Wait for `count` free GPUs, lease them until the process ends, and hide all others from it.

    Sets CUDA_VISIBLE_DEVICES, so it must be called before CUDA is initialised. If `count` is 0, all
    GPUs are hidden.

    Returns:
        The names of the leased GPUs, as in CUDA_VISIBLE_DEVICES.

    Raises:
        BadInput: the process may use fewer than `count` GPUs.
    """
    gpus = list_visible_gpus() if count else []
    if count > len(gpus):
        raise BadInput(
            f"compute.device: gpu: this job needs {count} GPU(s), but {len(gpus)} can be "
            f"used. Lower compute.processes, {LISTING_ADVICE}, or set "
            "compute.device: cpu; `nvidia-smi` lists the GPUs of this machine"
        )
    leased = _lease_locks("GPU", [gpu.uuid for gpu in gpus], count)
    names = [gpus[index].name for index in leased]
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the numbers of nvidia-smi and SLURM
    os.environ[VISIBLE_DEVICES] = ",".join(names)
    return names


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for this process while the context is open; create the folder if needed.

    The lock is the file `lock` of the folder. The file `owner` names the process that holds it.

    Args:
        folder: the folder of checkpoints in a run's folder. Messages name the run's folder.

    Raises:
        BadInput: another process holds the lock, or this user may not open the file.
    """
    lock_file, owner_file = folder / "lock", folder / "owner"
    deadline = time.monotonic() + FOLDER_LOCK_SECONDS
    lock = None
    while lock is None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(lock_file).acquire(timeout=max(0.0, deadline - time.monotonic()))
        except FileNotFoundError:  # a run that has just ended has deleted the folder
            if time.monotonic() > deadline:
                raise
        except Timeout:
            process = ""  # unknown if the file was just locked, or is deleted already
            with contextlib.suppress(FileNotFoundError):
                process = owner_file.read_text()
            owner = f"process {process}" if process else "another process"
            raise BadInput(
                f"{folder.parent}: in use by {owner}. Wait until it ends, or end it. If no such "
                f"process exists any more, delete {lock_file}"
            ) from None
        except PermissionError as error:
            raise BadInput(
                f"{folder.parent}: its lock {lock_file} cannot be opened: {error.strerror}. If "
                "another user runs this job, wait until it ends. Otherwise give yourself write "
                "access to the file and its folder"
            ) from None
    with lock:
        owner_file.write_text(f"{os.getpid()} on {platform.node()}")
        yield


def name_lease_folder() -> Path:
    """Return the path of the folder with this machine's lock files of cores and GPUs.

    Other machines may use the same temporary folder, so the name has an id of the machine. It is
    that of the last boot, because containers have host names of their own.
    """
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        machine = platform.node()
    return Path(tempfile.gettempdir()) / f"rapid-leases-{os.geteuid()}-{machine}"


def _secure_lease_folder(folder: Path) -> None:
    """Create a folder that only this user can write to; check a folder that exists already.

    Any user can create a folder of this name in the temporary folder. Others who can write to it
    could hold the locks for ever, or replace them by links to other files.

    Raises:
        BadInput: the folder is a link, belongs to another user, or others may write to it.
    """
    with contextlib.suppress(FileExistsError):  # an existing folder is checked below
        folder.mkdir(mode=0o700, parents=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        reason = "it is not a folder"
    elif status.st_uid != os.geteuid():
        reason = f"it belongs to user {status.st_uid}, not to user {os.geteuid()}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        reason = "other users may write to it"
    else:
        return
    raise BadInput(
        f"the folder of locks, {folder}, cannot be trusted: {reason}. Remove it, or set "
        "TMPDIR to a folder of your own"
    )


def _lease_locks(kind: str, names: list[str], count: int) -> list[int]:
    """Wait for `count` of the named locks, hold them, and return their indices into `names`.

    Only the job that holds the lock `gathering` gathers locks. Otherwise two jobs that both need
    the same two locks could hold one each, and wait for ever. Cores are leased before GPUs, so that
    no job holds GPUs while it waits for cores.
    """
    if not count:
        return []
    folder = name_lease_folder()
    _secure_lease_folder(folder)
    leased: dict[int, FileLock] = {}
    message = f"{WAITING}other jobs leave {count} of {len(names)} {kind}(s) free"
    print_once = cache(partial(print, message, file=sys.stderr))  # cached: later calls do nothing
    gathering = FileLock(folder / f"gather-{kind}.lock")
    try:
        gathering.acquire(timeout=GATHERING_SECONDS)
    except Timeout:  # another job waits for free cores or GPUs while it holds this lock
        print_once()
        gathering.acquire()
    try:
        while len(leased) < count:
            for index, name in enumerate(names):
                if len(leased) < count and index not in leased:
                    lock = FileLock(folder / f"{name}.lock")
                    with contextlib.suppress(Timeout):
                        lock.acquire(timeout=0)
                        leased[index] = lock
            if len(leased) < count:
                print_once()
                time.sleep(POLL_SECONDS)
    finally:
        gathering.release()
    _held_locks.extend(leased.values())
    return sorted(leased)
