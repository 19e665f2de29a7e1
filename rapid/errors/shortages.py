"""Tell what a machine lacks from an exception: room, permission, memory, open files, packages.

Libraries say it each in their own way: as an OSError with a number, or in words that have the
system's (safetensors, torch).
"""

import errno
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires

AGAIN = "then give the same command again"


@dataclass(frozen=True)
class Shortage:
    """Something that is lacking: how exceptions say so, and what to do."""

    what: str
    numbers: tuple[int, ...]
    words: str
    todo: str


SHORTAGES = [
    Shortage(
        "no room on the disk",
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        r"No space left on device|Disk quota exceeded|File too large|\(os error (28|122|27)\)"
        r"|unexpected pos \d+ vs|basic_ios::clear: iostream error",  # torch.save's
        f"Free some, {AGAIN}: `rapid plan` says how much an experiment takes",
    ),
    Shortage(
        "not allowed",
        (errno.EACCES, errno.EPERM, errno.EROFS),
        r"Permission denied|Operation not permitted|Read-only file system|\(os error (13|1|30)\)",
        "Let this user write there, or work in a folder of your own; caches follow HF_HOME and "
        "XDG_CACHE_HOME",
    ),
    Shortage(
        "no memory",
        (errno.ENOMEM,),
        r"[Cc]annot allocate memory|can't allocate memory|out of memory|not enough memory"
        r"|bad_alloc|can't start new thread"
        r"|error return without exception set",  # of C code that was given none, and says no more
        "Lower training.micro_batch (of SFT: sft.micro_batch) or set it to auto, or raise the "
        f"limit (ulimit -v, the job's memory), {AGAIN}: "
        "`rapid plan` says how much a job takes",
    ),
    Shortage(
        "something is in the way",
        (errno.ENOTDIR, errno.EEXIST, errno.EISDIR),
        r"Not a directory|File exists|Is a directory",
        f"Move it away, {AGAIN}",
    ),
    Shortage(
        "the disk does not answer",
        (errno.EIO, errno.ESTALE),
        r"Input/output error|Stale file handle",
        f"See dmesg, mount it again, {AGAIN}",
    ),
    Shortage(
        "too many open files",
        (errno.EMFILE, errno.ENFILE),
        r"Too many open files|\(os error (23|24)\)",
        f"Raise the limit (ulimit -n), {AGAIN}",
    ),
]


def shortage(error: BaseException) -> str | None:
    """Return what is lacking and what to do, in a line; None where that is not the cause."""
    for one in _causes(error):
        if isinstance(one, ModuleNotFoundError) and (extra := extra_with(one.name or "")):
            return f"{one}. Say `make setup`, or pip install -e '.[{extra}]' in the repository"
        for kind in SHORTAGES:
            said = " ".join(str(one).split())
            if (
                getattr(one, "errno", None) in kind.numbers
                or (errno.ENOMEM in kind.numbers and isinstance(one, MemoryError))
                or (not isinstance(one, OSError) and re.search(kind.words, said))
            ):
                return f"{kind.what}: {said or type(one).__name__}. {kind.todo}"
    return None


def extra_with(module: str) -> str | None:
    """Return the extra of this package that has a module; None where it is no extra's."""
    name = module.split(".")[0].replace("_", "-")
    with suppress(PackageNotFoundError):  # a checkout that was not installed
        for line in requires("rapid-rl") or ():  # first those without an extra
            if name == re.match(r"[\w-]+", line)[0] and "extra ==" not in line:
                break
            found = re.match(r"([\w-]+).*extra == .(\w+)", line)
            if found and name in found.groups():
                return found[2]
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__
