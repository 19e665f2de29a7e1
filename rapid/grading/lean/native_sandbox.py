"""Runs a native Lean in a sandbox of bubblewrap, without network, home and other processes.

This module is also a program, the parent process of bubblewrap:

    python native_sandbox.py COMMAND...

It runs bubblewrap's command line COMMAND with a filter of system calls (seccomp) in file descriptor
`FILTER`, and waits. The grader does not start bubblewrap directly, because bubblewrap ends with the
thread that started it, and a grader's thread may end earlier.
"""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FILTER = 3  # file descriptor from which bubblewrap reads the filter
# Paths outside of Lean's folders that Lean needs.
SYSTEM_PATHS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
# The folder of bpf.py, which assembles filters.
RUNNER_FOLDER = str(Path(__file__).resolve().parents[1] / "code" / "runner")

CLONE_THREAD = 0x0001_0000  # the flag of clone that makes a thread
# A filter cannot see the flags of clone3. So clone3 fails with ENOSYS, and C libraries use clone.
CLONE3 = 435
# Higher numbers are calls of the x32 interface, which the filter refuses.
HIGHEST_NATIVE_CALL = 0x3FFF_FFFF

# By os.uname().machine: the number of clone, and the numbers of refused calls. Lean may start
# threads, for which it calls clone. It does not need processes, and may not start any.
CLONE_AND_REFUSED_CALLS = {
    # fork, vfork, ptrace, unshare, keyctl, bpf, userfaultfd, perf_event_open, io_uring_setup;
    # aarch64 has no fork and vfork.
    "x86_64": (56, (57, 58, 101, 272, 250, 321, 323, 298, 425)),
    "aarch64": (220, (117, 97, 219, 280, 282, 241, 425)),
}


class SandboxUnavailable(RuntimeError):
    """The sandbox does not work on this machine. The message says why."""


def build_sandbox_command(program: Sequence[str], readable: Sequence[Path]) -> list[str]:
    """Return the command line that runs `program` in a sandbox.

    Args:
        program: a command line.
        readable: the paths that the program can read, besides the system's libraries.

    Raises:
        SandboxUnavailable: bubblewrap is missing, or this module has no filter for this kind of
            machine.
    """
    if os.uname().machine not in CLONE_AND_REFUSED_CALLS:
        raise SandboxUnavailable(f"no filter of system calls is written for {os.uname().machine}")
    if (bubblewrap := shutil.which("bwrap")) is None:
        raise SandboxUnavailable("bubblewrap is not installed: there is no `bwrap` on PATH")
    paths = [path for path in (*SYSTEM_PATHS, *map(str, readable)) if os.path.exists(path)]
    binds = [word for path in dict.fromkeys(paths) for word in ("--ro-bind", path, path)]
    command = [bubblewrap, "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL", "--seccomp", str(FILTER)]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *binds]
    command += ["--remount-ro", "/", "--chdir", "/", "--", *program]
    # -I and -S: Python reads no environment variables and no installed packages.
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), *command]


def assemble_filter(machine: str) -> bytes:
    """Return the filter of system calls for a kind of machine (`os.uname().machine`)."""
    # As a program, this module has no package `rapid` to import bpf from (-I and -S, see above).
    sys.path.append(RUNNER_FOLDER)
    import bpf

    clone, refused = CLONE_AND_REFUSED_CALLS[machine]
    steps = bpf.begin_filter(machine) + bpf.branch(
        bpf.IF_ANY_BIT, ~HIGHEST_NATIVE_CALL & 0xFFFF_FFFF, bpf.refuse()
    )
    steps += bpf.branch(bpf.IF_EQUAL, CLONE3, bpf.refuse(errno.ENOSYS))
    for number in refused:
        steps += bpf.branch(bpf.IF_EQUAL, number, bpf.refuse())
    allow_threads = (
        bpf.branch_on_argument(0, bpf.IF_ANY_BIT, CLONE_THREAD, bpf.ALLOW) + bpf.refuse()
    )
    return bpf.assemble(steps + bpf.branch(bpf.IF_EQUAL, clone, allow_threads) + bpf.ALLOW)


def main(command: list[str]) -> int:
    """Run bubblewrap and return its exit status; 128 + the signal if a signal ended it."""
    import resource

    # The pipe's buffer is larger than the filter, so that writing does not block.
    reading, writing = os.pipe()
    os.write(writing, assemble_filter(os.uname().machine))
    os.close(writing)
    os.dup2(reading, FILTER)
    # Files that Lean writes in the sandbox would take memory beyond Lean's limit: allow none.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    status = subprocess.call(command, pass_fds=[FILTER])
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
