"""Run a command as if the kernel had fewer features: a program that tests start.

    python restricted_kernel.py DENIED USER COMMAND...

DENIED lists the features that the kernel refuses, joined by commas: namespaces (as in containers),
landlock, seccomp and pidfd (as on old kernels). USER is the number of the user to run as. A seccomp
filter refuses the calls; the command and all processes that it starts inherit it.
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

# Numbers on x86_64 and aarch64, the error, and a condition on the first argument, if there is one.
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


def assemble_filter(denied: list[str]) -> bytes:
    architecture = bpf.MACHINES[os.uname().machine][1]
    steps = []
    for name in denied:
        for numbers, error, condition in CALLS[name]:
            failure = bpf.refuse(error)
            if condition:
                failure = bpf.branch_on_argument(0, *condition, failure)
            steps += bpf.LOAD_NUMBER + bpf.branch(bpf.IF_EQUAL, numbers[architecture], failure)
    return bpf.assemble(steps + bpf.ALLOW)


def main() -> None:
    denied, user, *command = sys.argv[1:]
    if int(user) != os.geteuid():
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    if denied:
        install_filter(assemble_filter(denied.split(",")))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
