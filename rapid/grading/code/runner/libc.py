"""Calls functions of the C library, and tries in a child process whether they succeed."""

import ctypes
import os
from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)


def call_libc(name: str, *arguments: object) -> int:
    """Call a function of the C library. Raise OSError if it returns -1."""
    result = getattr(_libc, name)(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def succeeds_in_child(attempt: Callable[[], None]) -> bool:
    """Run `attempt` in a child process, since it cannot be undone. Return whether it succeeds."""
    child = os.fork()
    if child == 0:
        try:
            attempt()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
