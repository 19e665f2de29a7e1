"""What passes through the sandbox's wall: requests, replies, and Python values as JSON.

JSON's own types stand for themselves (integers within 64 bits, floats with NaN and infinities);
every other type is an object with one key, the type's name. A subclass is sent as the plain type
it extends, so an object with an `__eq__` of its own arrives as data. What is no plain data arrives
as an `Opaque`. Nothing here is pickle: reading what hostile code sent runs none of it.
"""

import struct
from typing import Any

REQUEST = struct.Struct("!dQ?")  # seconds, bytes of address space, whether Python's guard is on
REPLY = struct.Struct("!?i")  # whether the time ran out, wait status
LENGTH = struct.Struct("!Q")  # bytes of the job that follows

_CONTAINERS = {"tuple": tuple, "set": set, "frozenset": frozenset}


class Opaque:
    """Stands for an object that is not plain data. Equal to itself only."""

    def __init__(self, type_name: str):
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"<{self.type_name} object>"


def encode(value: Any) -> Any:
    """The value as something that `json.dumps` writes.

    Raises:
        RecursionError: the value is nested too deeply, or contains itself.
    """
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        # Hexadecimal, since Python refuses to print or read a decimal of over 4,300 digits.
        return value if -(2**63) <= value < 2**63 else {"int": hex(value)}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    for name, container in _CONTAINERS.items():
        if isinstance(value, container):
            return {name: [encode(item) for item in value]}
    return {"object": type(value).__name__}


def decode(data: Any) -> Any:
    """The value that `encode` made `data` of. Builds new objects at every call.

    Raises:
        ValueError, TypeError, RecursionError: `data` was not made by `encode`.
    """
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise ValueError(f"an encoded value has one key, not {len(data)}")
    [(kind, content)] = data.items()
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](decode(item) for item in content)
    if kind == "dict":
        return {decode(key): decode(item) for key, item in content}
    if kind == "int":
        return int(content, 16)
    if kind == "complex":
        return complex(*content)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "object":
        return Opaque(str(content))
    raise ValueError(f"no encoded value is called {kind!r}")
