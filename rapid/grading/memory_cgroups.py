"""Limits the memory of graders: every grader process is started with `limit_memory`.

- If the machine runs out of memory, Linux kills a grader and not the trainer (`oom_score_adj`).
- A grader and its child processes share one memory limit, that of a cgroup v2 (below: "group"), if
  this user may make one. Otherwise the address space of each process is limited.
"""

import atexit
import contextlib
import functools
import itertools
import os
import re
import subprocess
from pathlib import Path

# The folder of all groups, and the file that says in which group this process is.
_MOUNT, _OWN_GROUP_FILE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_JOIN_FILE = "cgroup.procs"  # in a group's folder; a process joins by writing its PID to the file
_numbers = itertools.count()  # numbers the groups that this process makes

# A shell that limits itself and then becomes the command. Its arguments: the address space in KiB
# ("" for no limit), the `cgroup.procs` of the group to join ("" for none), and the command. It is
# an error if joining the group fails. It is no error if `ulimit` fails, because then a lower limit
# is in force already.
_SCRIPT = """
{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null
[ -z "$1" ] || ulimit -v "$1" 2>/dev/null
[ -z "$2" ] || echo $$ > "$2" || exit 1
shift 2
exec "$@"
"""


class LimitedCommand(list[str]):
    """A command line from `limit_memory`. `worker.Worker` starts no other command line."""


def limit_memory(
    command: list[str], memory_mb: int | None = None, address_space: bool = True
) -> LimitedCommand:
    """Return the command line that runs `command` as a grader, with its memory limited.

    This may make a group for the command. Call `remove_group` after the command has ended.

    Args:
        memory_mb: the limit in 1e6 bytes; None for no limit.
        address_space: whether to limit the address space if there are no cgroups. False for
            programs that reserve far more address space than they use, as V8 does for WebAssembly;
            without cgroups their memory is then not limited.
    """
    join_file, kibibytes = "", ""
    if memory_mb is not None:
        if folder := _find_groups_folder():
            join_file = str(_make_group(folder, memory_mb) / _JOIN_FILE)
        elif address_space:
            kibibytes = str(memory_mb * 1000 * 1000 // 1024)
    return LimitedCommand(["/bin/sh", "-c", _SCRIPT, "sh", kibibytes, join_file, *command])


def remove_group(command: list[str]) -> None:
    """Remove the group that `limit_memory` made for this command line.

    If a process of the group still runs, the group stays until the calling process ends.
    """
    for argument in command:  # one argument is the path of the group's `cgroup.procs`
        if argument.endswith(f"/{_JOIN_FILE}"):
            with contextlib.suppress(OSError):
                Path(argument).parent.rmdir()


@functools.cache
def _find_groups_folder() -> Path | None:
    """Return a folder in which this process may make groups that limit memory; None without one."""
    try:
        lines = _OWN_GROUP_FILE.read_text().splitlines()
    except OSError:
        return None
    # The line of cgroup v2 is "0::/" and the path of the group. Lines of cgroup v1 have no "0::/".
    current = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if current is None:
        return None
    # An ordinary user may write to the parent groups that were delegated to the user. Root may
    # write to all groups, but should not write to those of other programs.
    parents = [] if os.geteuid() == 0 else [_MOUNT / parent for parent in Path(current).parents]
    for folder in [_MOUNT / current, *parents]:
        if _can_limit_memory(folder):
            _remove_groups(folder, of_ended_processes=True)
            atexit.register(_remove_groups, folder)
            return folder
    return None


os.register_at_fork(after_in_child=_find_groups_folder.cache_clear)  # a child makes its own groups


def _can_limit_memory(folder: Path) -> bool:
    """Return whether groups in this folder limit memory and this user's processes may join them."""
    try:
        controllers = (folder / "cgroup.subtree_control").read_text().split()
        if "memory" not in controllers or not os.access(folder, os.W_OK):
            return False
        trial_group = _make_group(folder, 100)  # with memory for a shell
    except OSError:
        return False
    join = ["/bin/sh", "-c", 'echo $$ > "$1"', "sh", str(trial_group / _JOIN_FILE)]
    try:
        return subprocess.run(join, stderr=subprocess.DEVNULL, check=False).returncode == 0
    finally:
        with contextlib.suppress(OSError):
            trial_group.rmdir()


def _make_group(folder: Path, memory_mb: int) -> Path:
    """Make a group. If its processes together exceed this memory, Linux kills the largest one."""
    group = folder / f"rapid-{os.getpid()}-{next(_numbers)}"
    group.mkdir(exist_ok=True)  # an earlier process with this id may have left it
    try:
        (group / "memory.max").write_text(str(memory_mb * 1_000_000))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise
    with contextlib.suppress(OSError):  # no swap in this kernel, or before Linux 4.19
        (group / "memory.swap.max").write_text("0")
    return group


def _remove_groups(folder: Path, of_ended_processes: bool = False) -> None:
    """Remove the empty groups of this process or, if the flag is set, those of ended processes."""
    for group in folder.glob("rapid-*-*"):
        match = re.fullmatch(r"rapid-(\d+)-\d+", group.name)  # other programs may use such names
        owner = int(match[1]) if match else None
        if owner is None:
            continue
        has_ended = not Path(f"/proc/{owner}").exists()
        is_selected = has_ended if of_ended_processes else owner == os.getpid()
        if is_selected:
            with contextlib.suppress(OSError):
                group.rmdir()
