"""Runs a command on a machine that has less than this one: a program of its own, for tests.

    python deprived.py DENIED USER COMMAND...

DENIED lists what the kernel is to refuse, joined by commas: namespaces (as containers do), landlock
and seccomp (as old kernels do). USER is the user to run as, by number. A seccomp filter does it,
which the command and all that it starts inherit.
"""

import ctypes
import errno
import os
import struct
import sys
from pathlib import Path

import rapid.grading

sys.path.insert(0, str(Path(rapid.grading.__file__).parent / "inside"))
from filters import ALLOW, IF_ANY_BIT, IF_EQUAL, LOAD, MACHINES, NUMBER, RETURN
from libc import call
from walls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
)

FAIL = 0x0005_0000  # SECCOMP_RET_ERRNO
FIRST_ARGUMENT = 16
NAMESPACES = CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUSER | CLONE_NEWUTS
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22
# Numbers on x86_64 and aarch64, the error, and what the first argument has to be, if anything.
CALLS = {
    "namespaces": [
        ((272, 97), errno.EPERM, None),  # unshare
        ((308, 268), errno.EPERM, None),  # setns
        ((165, 40), errno.EPERM, None),  # mount
        ((435, 435), errno.ENOSYS, None),  # clone3, whose flags a filter cannot see
        ((56, 220), errno.EPERM, (IF_ANY_BIT, NAMESPACES)),  # clone
    ],
    "landlock": [((number, number), errno.ENOSYS, None) for number in (444, 445, 446)],
    "seccomp": [
        ((317, 277), errno.ENOSYS, None),
        ((157, 167), errno.EINVAL, (IF_EQUAL, PR_SET_SECCOMP)),  # prctl
    ],
}


def program(denied: list[str]) -> bytes:
    column = MACHINES[os.uname().machine][1]
    steps = []
    for name in denied:
        for numbers, error, condition in CALLS[name]:
            check = []
            if condition:
                check = [(LOAD, 0, 0, FIRST_ARGUMENT), (condition[0], 0, 1, condition[1])]
            check.append((RETURN, 0, 0, FAIL | error))
            steps += [(LOAD, 0, 0, NUMBER), (IF_EQUAL, 0, len(check), numbers[column]), *check]
    steps.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def main() -> None:
    denied, user, *command = sys.argv[1:]
    if int(user) != os.geteuid():
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    if denied:
        steps = program(denied.split(","))
        code = ctypes.create_string_buffer(steps, len(steps))
        header = struct.pack("HP", len(steps) // 8, ctypes.addressof(code))
        call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        call("prctl", PR_SET_SECCOMP, 2, header, 0, 0)
    os.execvp(command[0], command)


main()
