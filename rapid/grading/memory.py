"""Limits the memory of graders: every process that grades is started through `limit_memory`.

- Where memory runs out, Linux ends a grader and not the trainer beside it (`oom_score_adj`).
- A grader and all that it starts share a limit on memory: a group of cgroup v2 where this user may
  make one, a limit on the address space of each process elsewhere.
"""

import atexit
import contextlib
import functools
import itertools
import os
import re
import subprocess
from pathlib import Path

_MOUNT, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_MEMBERS = "cgroup.procs"  # in a group's folder: its processes
_numbers = itertools.count()

# A shell that limits itself and then becomes the command. Its arguments: the address space in KiB,
# the file that takes it into a group, the command. A group that does not take it is an error; an
# address space that is above the limit already in force is none.
_SCRIPT = """
{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null
[ -z "$1" ] || ulimit -v "$1" 2>/dev/null
[ -z "$2" ] || echo $$ > "$2" || exit 1
shift 2
exec "$@"
"""


class LimitedCommand(list[str]):
    """A command line from `limit_memory`, the only one that `worker.Worker` starts."""


def limit_memory(
    command: list[str], memory_mb: int | None = None, address_space: bool = True
) -> LimitedCommand:
    """Return the command line that runs `command` as a grader, with its memory limited.

    Args:
        memory_mb: 1e6 bytes; None for no limit.
        address_space: whether the limit may be one on address space. Not for programs that reserve
            far more than they use, as V8 does for WebAssembly; these have no limit without cgroups.
    """
    members, kibibytes = "", ""
    if memory_mb is not None:
        if folder := _find_groups_folder():
            members = str(_make_group(folder, memory_mb) / _MEMBERS)
        elif address_space:
            kibibytes = str(memory_mb * 1000 * 1000 // 1024)
    return LimitedCommand(["/bin/sh", "-c", _SCRIPT, "sh", kibibytes, members, *command])


def remove_group(command: list[str]) -> None:
    """Remove the group that `limit_memory` made for a command, once its processes have ended.

    Where one is still there it stays until this process ends.
    """
    for argument in command:
        if argument.endswith(f"/{_MEMBERS}"):
            with contextlib.suppress(OSError):
                Path(argument).parent.rmdir()


@functools.cache
def _find_groups_folder() -> Path | None:
    """Return the folder in which this process may make groups that limit memory, if any."""
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return None
    current = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if current is None:
        return None
    # A user may write to the groups above that were delegated to him. Root may write to all, but
    # has no business in those of others.
    above = [] if os.geteuid() == 0 else [_MOUNT / parent for parent in Path(current).parents]
    for folder in [_MOUNT / current, *above]:
        if _limits_memory(folder):
            _remove_groups(folder, of_the_dead=True)
            atexit.register(_remove_groups, folder)
            return folder
    return None


os.register_at_fork(after_in_child=_find_groups_folder.cache_clear)  # a child makes its own groups


def _limits_memory(folder: Path) -> bool:
    """Return whether groups in this folder limit memory and take processes of this user."""
    try:
        controllers = (folder / "cgroup.subtree_control").read_text().split()
        if "memory" not in controllers or not os.access(folder, os.W_OK):
            return False
        members = _make_group(folder, 100) / _MEMBERS
    except OSError:
        return False
    enter = ["/bin/sh", "-c", 'echo $$ > "$1"', "sh", str(members)]
    return subprocess.run(enter, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _make_group(folder: Path, memory_mb: int) -> Path:
    """Make a group in which Linux ends the largest process when all need more than this memory."""
    group = folder / f"rapid-{os.getpid()}-{next(_numbers)}"
    group.mkdir(exist_ok=True)  # one that an earlier process of this id left
    (group / "memory.max").write_text(str(memory_mb * 1_000_000))
    with contextlib.suppress(OSError):  # a kernel without swap, or one before 4.19
        (group / "memory.swap.max").write_text("0")
    return group


def _remove_groups(folder: Path, of_the_dead: bool = False) -> None:
    """Remove the groups of this process, or those that dead ones left. Groups in use stay."""
    for group in folder.glob("rapid-*-*"):
        match = re.fullmatch(r"rapid-(\d+)-\d+", group.name)  # not every such name is a group's
        owner = int(match[1]) if match else None
        if owner and (not Path(f"/proc/{owner}").exists() if of_the_dead else owner == os.getpid()):
            with contextlib.suppress(OSError):
                group.rmdir()
