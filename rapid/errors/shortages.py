"""Recognizes in exceptions what a machine lacks: disk space, permissions, memory, packages.

Libraries report a shortage as an OSError with an error number, or as an exception of their own with
the system's message (safetensors, torch).
"""

import errno
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires

RUN_AGAIN = "then run the same command again"  # end of most advice


@dataclass(frozen=True)
class Shortage:
    """Something that a machine lacks: how to recognize it in an exception, and what to do."""

    name: str
    numbers: tuple[int, ...]  # values of OSError.errno
    pattern: str  # regular expression for the messages of other exceptions
    advice: str


SHORTAGES = [
    Shortage(
        "no space left on the disk",
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        r"No space left on device|Disk quota exceeded|File too large|\(os error (28|122|27)\)"
        r"|unexpected pos \d+ vs|basic_ios::clear: iostream error",  # by torch.save
        f"Free some space, {RUN_AGAIN}. `rapid plan` says how much an experiment takes",
    ),
    Shortage(
        "permission denied",
        (errno.EACCES, errno.EPERM, errno.EROFS),
        r"Permission denied|Operation not permitted|Read-only file system|\(os error (13|1|30)\)",
        "Give yourself write access, or work in a folder of your own; the environment "
        "variables HF_HOME and XDG_CACHE_HOME set the folders of caches",
    ),
    Shortage(
        "out of memory",
        (errno.ENOMEM,),
        r"[Cc]annot allocate memory|can't allocate memory|out of memory|not enough memory"
        r"|bad_alloc|can't start new thread"
        r"|error return without exception set",  # by C code that got no memory
        "Lower training.micro_batch (sft.micro_batch for SFT) or set it to auto, or, for main "
        f"memory, raise the limit (ulimit -v, the job's memory in SLURM), {RUN_AGAIN}. In the "
        "pipeline, finished trainings with another micro_batch run again too: `snakemake -n` "
        "lists them. `rapid plan` says how much a job takes",
    ),
    Shortage(
        "a file or folder is in the way",
        (errno.ENOTDIR, errno.EEXIST, errno.EISDIR),
        r"Not a directory|File exists|Is a directory",
        f"Move it away, {RUN_AGAIN}",
    ),
    Shortage(
        "the disk cannot be read or written",
        (errno.EIO, errno.ESTALE),
        r"Input/output error|Stale file handle",
        f"See dmesg, mount the disk again, {RUN_AGAIN}",
    ),
    Shortage(
        "too many open files",
        (errno.EMFILE, errno.ENFILE),
        r"Too many open files|\(os error (23|24)\)",
        f"Raise the limit (ulimit -n), {RUN_AGAIN}",
    ),
]


def describe_shortage(error: BaseException) -> str | None:
    """Return one line on what is lacking and what to do; None if no shortage caused the error."""
    for cause in _iterate_causes(error):
        if isinstance(cause, ModuleNotFoundError) and (extra := find_extra(cause.name or "")):
            return f"{cause}. Run `make setup`, or `pip install -e '.[{extra}]'` in the clone"
        message = " ".join(str(cause).split())
        for shortage in SHORTAGES:
            if (
                getattr(cause, "errno", None) in shortage.numbers
                or (errno.ENOMEM in shortage.numbers and isinstance(cause, MemoryError))
                or (not isinstance(cause, OSError) and re.search(shortage.pattern, message))
            ):
                return f"{shortage.name}: {message or type(cause).__name__}. {shortage.advice}"
    return None


def find_extra(module: str) -> str | None:
    """Return the extra (optional dependency group) of this package that installs a module.

    Returns None if no extra does, or if the package installs the module without an extra.
    """
    name = module.split(".")[0].replace("_", "-")
    with suppress(PackageNotFoundError):  # a checkout that was not installed
        for line in requires("rapid-rl") or ():  # requirements without an extra come first
            if name == re.match(r"[\w-]+", line)[0] and "extra ==" not in line:
                break
            # A module belongs to an extra if the extra has a requirement of the module's name, or
            # has this name itself: the extra "vllm" installs vllm by its requirement trl[vllm].
            match = re.match(r"([\w-]+).*extra == .(\w+)", line)
            if match and name in match.groups():
                return match[2]
    return None


def _iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, then what it was raised from, what that was raised from, and so on."""
    while error:
        yield error
        error = error.__cause__ or error.__context__
