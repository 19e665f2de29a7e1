"""Encodes the data between grader and sandbox: requests, replies, and Python values as JSON.

None, booleans, strings, lists, floats (also NaN and infinities) and integers within 64 bits are
written as they are. Any other value, such as a dict, is an object with one key, the name of its
type.

- An instance of a subclass is sent as a value of the plain type that it extends. So a completion
  cannot send an object with an `__eq__` of its own.
- A fraction, a decimal or a scalar of numpy is sent as the number that it equals, if there is one.
- Every other object is decoded as an `Opaque`, which equals only itself.
- An output that is a list or tuple with more than `MAX_ENCODED_ITEMS` items, counting also the
  items of the lists and tuples in it, is sent as a `Digest`, if it can have one
  (`compute_digest`). To encode each item would take a minute and gigabytes.

Pickle is not used: decoding data from hostile code runs no code.

The runner is the process in the sandbox that forks a child for each job (`__main__`).
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

# From grader to runner: timeout in seconds, bytes of address space, whether the guard in Python and
# the kernel's filters are on.
REQUEST = struct.Struct("!dQ??")
REPLY = struct.Struct("!?i")  # from runner to grader: whether the time ran out, wait status
LENGTH = struct.Struct("!Q")  # from grader to child: bytes of the job that follows

MAX_ENCODED_ITEMS = 100_000  # items of a list or tuple that are encoded one by one
_HASHED_AT_A_TIME = 10_000  # items of a list that are hashed at a time, to limit memory
# Maximum number of different items with the same hash in a set. Even two are rare by chance.
_MAX_COLLISIONS = 16

_CONTAINERS = {"tuple": tuple, "set": set, "frozenset": frozenset}


class Opaque:
    """Stands for an object that is not plain data. It is equal only to itself."""


@dataclass(frozen=True)
class Digest:
    """Stands for a long list or tuple. Equal digests mean equal values of the same types."""

    blake2: str


# Types that may be in a digest. Not float, since floats are compared with a tolerance; not dict,
# since the bytes of equal dicts depend on the order of their items (marshal sorts those of sets).
_DIGESTIBLE_TYPES = {type(None), bool, int, str, bytes, list, tuple, set, frozenset}
_NESTABLE_TYPES = {list, tuple, set, frozenset}
_MAX_DEPTH = 20  # levels of nesting that are looked at for a digest


def compute_digest(items: list | tuple) -> Digest | None:
    """Return the digest of a list or tuple.

    Returns None if it contains a value whose type is not in `_DIGESTIBLE_TYPES`, or is nested too
    deeply.
    """
    level: Iterable = items
    for _ in range(_MAX_DEPTH):  # ends for a list that contains itself, too
        if not _DIGESTIBLE_TYPES.issuperset(map(type, level)):
            return None
        level = [part for item in level if type(item) in _NESTABLE_TYPES for part in item]
    if level:
        return None
    blake2 = hashlib.blake2b(type(items).__name__.encode())
    try:
        for start in range(0, len(items), _HASHED_AT_A_TIME):
            # In version 0 of marshal's format, the bytes depend on the values only. Later versions
            # write a reference for an object that occurs twice.
            blake2.update(marshal.dumps(items[start : start + _HASHED_AT_A_TIME], 0))
    except ValueError:
        return None
    return Digest(blake2.hexdigest())


def encode_output(value: Any) -> Any:
    """Return a value encoded as by `encode`, or as a digest if it is a long list or tuple."""
    is_long = type(value) in (list, tuple) and _count_items(value) > MAX_ENCODED_ITEMS
    if is_long and (digest := compute_digest(value)):
        return {"digest": digest.blake2}
    return encode(value)


def _count_items(items: list | tuple) -> int:
    """Return the number of items, plus the items of the lists and tuples among them."""
    return sum(1 + len(item) if type(item) in (list, tuple) else 1 for item in items)


def encode(value: Any) -> Any:
    """Return a Python value as data that `json.dumps` can write.

    Raises:
        RecursionError: the value is nested too deeply, or contains itself.
    """
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        # Hexadecimal: Python refuses to convert decimal numbers of over 4,300 digits.
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
            with contextlib.suppress(ValueError, ArithmeticError):  # NaN, infinite or too large
                if value == (plain := kind(value)):
                    return encode(plain)
    numpy = sys.modules.get("numpy")  # only if the completion has imported it
    if numpy is not None and isinstance(value, numpy.generic):
        plain = value.item()
        if not isinstance(plain, numpy.generic):
            return encode(plain)
    return {"object": type(value).__name__}


def decode(data: Any) -> Any:
    """Return the value that `encode` or `encode_output` has encoded as `data`.

    Raises:
        ValueError, TypeError, RecursionError: `data` is not encoded data, or holds a set or dict
            that was made to be slow (`check_hashable`).
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
    """Return the items as a list, if they can be put into a set or dict in reasonable time.

    An attacker can choose integers or tuples with the same hash, since their hashes are the same in
    every process. To put a thousand of these into a set takes as long as a million other items.

    Raises:
        ValueError: over `_MAX_COLLISIONS` different items have the same hash.
        TypeError: an item is not hashable.
    """
    items, items_by_hash = list(items), {}
    for item in items:
        colliding = items_by_hash.setdefault(hash(item), [])
        if item not in colliding:
            colliding.append(item)
            if len(colliding) > _MAX_COLLISIONS:
                raise ValueError(f"more than {_MAX_COLLISIONS} different items collide (same hash)")
    return items


def count_values(line: bytes) -> int:
    """Return an upper bound on the number of values in a line of JSON, without parsing the line."""
    return 1 + sum(line.count(mark) for mark in (b",", b"[", b"{"))
