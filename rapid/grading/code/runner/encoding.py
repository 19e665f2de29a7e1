"""Encode what passes through the sandbox's wall: requests, replies, Python values as JSON.

JSON's own types stand for themselves (integers within 64 bits, floats with NaN and infinities);
every other type is an object with one key, the type's name. A subclass is sent as the plain type
it extends, so an object with an `__eq__` of its own arrives as data; a fraction, a decimal or a
scalar of numpy's as the number that it equals, if any. What is no plain data arrives as an
`Opaque`. Nothing here is pickle: reading what hostile code sent runs none of it.

A list or tuple of over `MANY` items, with those of its items, is sent as a `Digest`: encoded one by
one they would take a minute and gigabytes.
"""

import contextlib
import hashlib
import marshal
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

REQUEST = struct.Struct("!dQ??")  # seconds, bytes of address space, guarded, filtered
REPLY = struct.Struct("!?i")  # whether the time ran out, wait status
LENGTH = struct.Struct("!Q")  # bytes of the job that follows

MANY = 100_000
_CHUNK = 10_000  # items hashed at a time
_COLLISIONS = 16  # different items with one hash in a set: chance makes none

_CONTAINERS = {"tuple": tuple, "set": set, "frozenset": frozenset}


class Opaque:
    """Stands for an object that is not plain data. Equal to itself only."""


@dataclass(frozen=True)
class Digest:
    """Stands for a long list or tuple. Equal to that of one with equal items of equal types."""

    blake2: str


# Not a float, which is compared with a tolerance, nor a dict, whose bytes follow its order.
_DIGESTED = {type(None), bool, int, str, bytes, list, tuple, set, frozenset}
_NESTED = {list, tuple, set, frozenset}
_DEEPEST = 20


def compute_digest(items: list | tuple) -> Digest | None:
    """Return the digest of a list or tuple of plain data; None where it holds something else."""
    level: Iterable = items
    for _ in range(_DEEPEST):  # a list that contains itself would be deeper
        if not _DIGESTED.issuperset(map(type, level)):
            return None
        level = [part for item in level if type(item) in _NESTED for part in item]
    if level:
        return None
    blake2 = hashlib.blake2b(type(items).__name__.encode())
    try:
        for start in range(0, len(items), _CHUNK):
            # In version 0 bytes follow from values alone, not from which objects are shared.
            blake2.update(marshal.dumps(items[start : start + _CHUNK], 0))
    except ValueError:
        return None
    return Digest(blake2.hexdigest())


def encode_output(value: Any) -> Any:
    """Return `encode` of the value, with a digest in place of a long list or tuple."""
    if type(value) in (list, tuple) and _size(value) > MANY and (short := compute_digest(value)):
        return {"digest": short.blake2}
    return encode(value)


def _size(items: list | tuple) -> int:
    """Return the number of items, and of items of lists and tuples among them."""
    return sum(1 + len(item) if type(item) in (list, tuple) else 1 for item in items)


def encode(value: Any) -> Any:
    """Return the value as something that `json.dumps` writes.

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
    if isinstance(value, Fraction | Decimal):
        for kind in (int, float):
            with contextlib.suppress(ValueError, ArithmeticError):  # not a number, or too large
                if value == (plain := kind(value)):
                    return encode(plain)
    numpy = sys.modules.get("numpy")  # a completion may have imported it, the runner has not
    if numpy is not None and isinstance(value, numpy.generic):
        plain = value.item()
        if not isinstance(plain, numpy.generic):
            return encode(plain)
    return {"object": type(value).__name__}


def decode(data: Any) -> Any:
    """Return the value that `encode` made `data` of, as new objects.

    Raises:
        ValueError, TypeError, RecursionError: `data` was not made by `encode`, or is made to
            be slow.
    """
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise ValueError(f"an encoded value has one key, not {len(data)}")
    [(kind, content)] = data.items()
    if kind == "tuple":
        return tuple(map(decode, content))
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](check_hashable(map(decode, content)))
    if kind == "dict":
        keys = check_hashable(decode(key) for key, _ in content)
        return dict(zip(keys, (decode(item) for _, item in content), strict=True))
    if kind == "int":
        return int(content, 16)
    if kind == "complex":
        return complex(*content)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind in ("digest", "object") and isinstance(content, str):
        return Digest(content) if kind == "digest" else Opaque()
    raise ValueError(f"not an encoded value: {kind!r}")


def check_hashable(items: Iterable) -> list:
    """Return the items, which may go into a set or be the keys of a dict.

    Python's integers and tuples hash alike in every process, and a thousand with one hash take as
    long as a million others.

    Raises:
        ValueError: over `_COLLISIONS` different items share a hash.
        TypeError: an item has no hash.
    """
    items, items_by_hash = list(items), {}
    for item in items:
        colliding = items_by_hash.setdefault(hash(item), [])
        if item not in colliding:
            colliding.append(item)
            if len(colliding) > _COLLISIONS:
                raise ValueError("made to collide")
    return items


def count_values(line: bytes) -> int:
    """Return an upper bound on the number of values in a line of JSON, without parsing it."""
    return 1 + sum(line.count(mark) for mark in (b",", b"[", b"{"))
