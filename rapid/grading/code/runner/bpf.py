"""Builds seccomp filters of system calls, in the kernel's filter language (BPF).

A filter is a list of steps. At every system call the kernel runs the steps until one of them allows
or refuses the call. This module needs only the standard library, so programs can import it by path.
"""

import errno
import struct

# Operations, from linux/bpf_common.h: load a word of the call's data, compare it, return a
# decision.
_LOAD, IF_EQUAL, IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
# Offsets in struct seccomp_data. An argument has 8 bytes, the low half first.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

# By os.uname().machine: the constant AUDIT_ARCH_... of linux/audit.h, and an index. The number of a
# system call is given as a pair, for x86_64 and for aarch64; the index selects one of them.
MACHINES = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}

# Operation, number of steps to skip if the comparison is true, number if it is false, operand.
Step = tuple[int, int, int, int]

ALLOW: list[Step] = [(_RETURN, 0, 0, 0x7FFF_0000)]  # SECCOMP_RET_ALLOW
LOAD_NUMBER: list[Step] = [(_LOAD, 0, 0, _NUMBER)]


def refuse(error: int = errno.EPERM) -> list[Step]:
    """Return the step that makes the call fail with this error."""
    return [(_RETURN, 0, 0, 0x0005_0000 | error)]  # SECCOMP_RET_ERRNO


def branch(condition: int, operand: int, then: list[Step]) -> list[Step]:
    """Return steps that run the steps `then` if the loaded word meets a condition, else skip them.

    Args:
        condition: IF_EQUAL: the word equals the operand. IF_ANY_BIT: they have a bit in common.
    """
    return [(condition, 0, len(then), operand), *then]


def branch_on_argument(index: int, condition: int, operand: int, then: list[Step]) -> list[Step]:
    """Return steps that load an argument of the call, and run `then` if it meets a condition."""
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * index), *branch(condition, operand, then)]


def begin_filter(machine: str) -> list[Step]:
    """Return the first steps: refuse calls for other architectures, load the call's number."""
    is_native = (IF_EQUAL, 1, 0, MACHINES[machine][0])  # 32-bit calls have other numbers
    return [(_LOAD, 0, 0, _ARCHITECTURE), is_native, *refuse(), *LOAD_NUMBER]


def assemble(steps: list[Step]) -> bytes:
    """Return the steps as an array of struct sock_filter."""
    return b"".join(struct.pack("HBBI", *step) for step in steps)
