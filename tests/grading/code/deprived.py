"""Runs a command on a machine that has less than this one: a program of its own, for tests.

    python deprived.py DENIED USER COMMAND...

DENIED lists what the kernel is to refuse, joined by commas: namespaces (as containers do), landlock,
seccomp and pidfd (as old kernels do). USER is the user to run as, by number. A seccomp filter does it,
which the command and all that it starts inherit.
"""

import errno
import os
import sys
from pathlib import Path

import rapid.grading

sys.path.insert(0, str(Path(rapid.grading.__file__).parent / "code" / "runner"))
import bpf
from filters import PR_SET_SECCOMP, install_filter
from isolation import CLONE_NEWUSER, NAMESPACES

# Numbers on x86_64 and aarch64, the error, and what the first argument has to be, if anything.
CALLS = {
    "pidfd": [((434, 434), errno.ENOSYS, None)],  # kernels before 5.3
    "namespaces": [
        ((272, 97), errno.EPERM, None),  # unshare
        ((308, 268), errno.EPERM, None),  # setns
        ((165, 40), errno.EPERM, None),  # mount
        ((435, 435), errno.ENOSYS, None),  # clone3, whose flags a filter cannot see
        ((56, 220), errno.EPERM, (bpf.IF_ANY_BIT, NAMESPACES | CLONE_NEWUSER)),  # clone
    ],
    "landlock": [((number, number), errno.ENOSYS, None) for number in (444, 445, 446)],
    "seccomp": [
        ((317, 277), errno.ENOSYS, None),
        ((157, 167), errno.EINVAL, (bpf.IF_EQUAL, PR_SET_SECCOMP)),  # prctl
    ],
}


def program(denied: list[str]) -> bytes:
    column = bpf.MACHINES[os.uname().machine][1]
    steps = []
    for name in denied:
        for numbers, error, condition in CALLS[name]:
            failure = bpf.refuse(error)
            if condition:
                failure = bpf.branch_on_argument(0, *condition, failure)
            steps += bpf.LOAD_NUMBER + bpf.branch(bpf.IF_EQUAL, numbers[column], failure)
    return bpf.assemble(steps + bpf.ALLOW)


def main() -> None:
    denied, user, *command = sys.argv[1:]
    if int(user) != os.geteuid():
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    if denied:
        install_filter(program(denied.split(",")))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
