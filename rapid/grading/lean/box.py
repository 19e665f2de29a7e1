"""A box of bubblewrap for a native Lean: no network, no home, no process but its own.

It is also a program, which stands between Lean and its owner:

    python box.py COMMAND...

runs `COMMAND`, of bubblewrap, with a filter of system calls as file descriptor `FILTER`. It stays,
since bubblewrap ends with the thread that started it, and an owner's threads come and go.
"""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FILTER = 3
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
RUNNER = str(Path(__file__).resolve().parents[1] / "code" / "runner")  # bpf.py is there

CLONE_THREAD = 0x0001_0000
CLONE3 = 435  # its flags are out of a filter's sight; without it, C libraries use clone
HIGHEST = 0x3FFF_FFFF  # above are the calls of the x32 interface

# By os.uname().machine: the numbers of clone and of what is refused.
# Threads are allowed, processes are not: Lean starts none.
CALLS = {
    # fork, vfork, ptrace, unshare, keyctl, bpf, userfaultfd, perf_event_open, io_uring_setup
    "x86_64": (56, (57, 58, 101, 272, 250, 321, 323, 298, 425)),
    "aarch64": (220, (117, 97, 219, 280, 282, 241, 425)),
}


class NoBox(RuntimeError):
    """There can be no box here. The message says why."""


def box_command(program: Sequence[str], readable: Sequence[Path]) -> list[str]:
    """Return the command line that runs `program` in a box, where it can read only `readable`.

    Raises:
        NoBox: bubblewrap is missing, or this kernel's seccomp filters are of another machine.
    """
    if os.uname().machine not in CALLS:
        raise NoBox(f"no filter of system calls is written for {os.uname().machine}")
    if (bubblewrap := shutil.which("bwrap")) is None:
        raise NoBox("bubblewrap is not installed: there is no `bwrap` on PATH")
    paths = [path for path in (*SYSTEM, *map(str, readable)) if os.path.exists(path)]
    binds = [word for path in dict.fromkeys(paths) for word in ("--ro-bind", path, path)]
    command = [bubblewrap, "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL", "--seccomp", str(FILTER)]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *binds]
    command += ["--remount-ro", "/", "--chdir", "/", "--", *program]
    # No site packages, nothing read from the environment.
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), *command]


def assemble_filter(machine: str) -> bytes:
    """Return the filter of system calls in the kernel's language."""
    sys.path.append(RUNNER)
    import bpf

    clone, refused = CALLS[machine]
    steps = bpf.begin_filter(machine) + bpf.branch(
        bpf.IF_ANY_BIT, ~HIGHEST & 0xFFFF_FFFF, bpf.refuse()
    )
    steps += bpf.branch(bpf.IF_EQUAL, CLONE3, bpf.refuse(errno.ENOSYS))
    for number in refused:
        steps += bpf.branch(bpf.IF_EQUAL, number, bpf.refuse())
    threads = bpf.branch_on_argument(0, bpf.IF_ANY_BIT, CLONE_THREAD, bpf.ALLOW) + bpf.refuse()
    return bpf.assemble(steps + bpf.branch(bpf.IF_EQUAL, clone, threads) + bpf.ALLOW)


def main(command: list[str]) -> int:
    """Run bubblewrap to its end. Returns its exit status."""
    import resource

    reading, writing = os.pipe()  # which holds all of it
    os.write(writing, assemble_filter(os.uname().machine))
    os.close(writing)
    os.dup2(reading, FILTER)
    # What is written in the box takes up memory.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    status = subprocess.call(command, pass_fds=[FILTER])
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
