"""Filters of system calls in the kernel's own language, for seccomp.

A filter is a list of steps, which the kernel follows at every call until one of them decides.
The module needs the standard library alone, so that any program can import it by path.
"""

import errno
import struct

# From linux/bpf_common.h and linux/seccomp.h. A word of data is loaded, compared, or returned.
_LOAD, IF_EQUAL, IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets; an argument's low half comes first

# By os.uname().machine: AUDIT_ARCH from linux/audit.h, which of the two numbers of a call.
MACHINES = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}

Step = tuple[int, int, int, int]  # operation, steps to skip if true and if false, operand

ALLOW: list[Step] = [(_RETURN, 0, 0, 0x7FFF_0000)]
LOAD_NUMBER: list[Step] = [(_LOAD, 0, 0, _NUMBER)]


def refuse(error: int = errno.EPERM) -> list[Step]:
    """Return the step that lets the call fail with this error."""
    return [(_RETURN, 0, 0, 0x0005_0000 | error)]


def branch(condition: int, operand: int, then: list[Step]) -> list[Step]:
    """Return steps that follow `then` if the loaded word meets the condition."""
    return [(condition, 0, len(then), operand), *then]


def branch_on_argument(index: int, condition: int, operand: int, then: list[Step]) -> list[Step]:
    """Return steps that load an argument and follow `then` if it meets the condition."""
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * index), *branch(condition, operand, then)]


def begin_filter(machine: str) -> list[Step]:
    """Return the first steps: refuse calls of other interfaces, and load the number of the call."""
    is_native = (IF_EQUAL, 1, 0, MACHINES[machine][0])  # a 32-bit call has other numbers
    return [(_LOAD, 0, 0, _ARCHITECTURE), is_native, *refuse(), *LOAD_NUMBER]


def assemble(steps: list[Step]) -> bytes:
    """Return the steps as an array of struct sock_filter."""
    return b"".join(struct.pack("HBBI", *step) for step in steps)
