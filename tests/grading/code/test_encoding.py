"""Values cross the sandbox's wall as they are, and hostile ones cost the grader little."""

import itertools
import json
import time
from collections import Counter

import pytest

from rapid.grading.code.runner import encoding


def cross(value):
    return encoding.decode(json.loads(json.dumps(encoding.encode_output(value))))


VALUES = [
    None, True, [1, 2.5, "a", "\udcff", float("inf")], (1, (2, [3])), {1: (2,), (3, 4): {5}},
    {frozenset({1}), frozenset()}, 2**63, -(16**5000), 1 + 2j, b"\x00\xff", {}, set(), (),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_arrives_as_it_was(value):
    arrived = cross(value)
    assert arrived == value
    assert type(arrived) is type(value)


@pytest.mark.parametrize(
    "data",
    [{"tuple": 1}, {"int": "x"}, {"a": 1}, {}, {"dict": [1]}, {"set": [[]]}, {"object": [1]}],
)
def test_what_was_not_encoded_is_refused(data):
    with pytest.raises((ValueError, TypeError)):
        encoding.decode(data)


LONG = 1001


@pytest.fixture(autouse=True)
def digests_of_less(monkeypatch):
    """A thousand items are many, and are hashed in ten parts."""
    monkeypatch.setattr(encoding, "MANY", LONG - 1)
    monkeypatch.setattr(encoding, "_CHUNK", 100)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a"] * LONG, ["".join(["", "a"]) for _ in range(LONG)]),
        ([("x", "yz")] * LONG, [(c, "yz") for c in itertools.repeat("xyz"[0], LONG)]),
        ([2**70 + i for i in range(LONG)], [(2**70 * 3) // 3 + i for i in range(LONG)]),
        ([{"b", "a"}] * LONG, [{"a", "b"} for _ in range(LONG)]),
        ((None, True) * LONG, tuple(itertools.islice(itertools.cycle([None, True]), 2 * LONG))),
        (["\udcff\0é"] * LONG, ["\udcff" + "\0é"] * LONG),
        ([tuple(range(77))] * (LONG // 70), [tuple(range(77)) for _ in range(LONG // 70)]),
    ],
    ids=lambda items: type(items[0]).__name__,
)
def test_equal_long_values_have_equal_digests(one, other):
    """Whether they share their items, are interned, or parts of something else."""
    assert isinstance(cross(one), encoding.Digest)
    assert cross(one) == cross(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1] * LONG, [True] * LONG),
        ([1] * LONG, (1,) * LONG),
        ([1] * LONG, [1] * (LONG + 1)),
        (["1"] * LONG, [1] * LONG),
        ([""] * LONG + ["ab"], [""] * LONG + ["ba"]),
        ([(1, 2), (3,)] * LONG, [(1,), (2, 3)] * LONG),
    ],
    ids=lambda items: type(items[0]).__name__,
)
def test_different_long_values_have_different_digests(one, other):
    assert cross(one) != cross(other)


@pytest.mark.parametrize(
    "item",
    [
        *(0.5, Counter("a"), 1j, object(), type("Int", (int,), {})(1)),
        *((object(),), [0.5], ({"a": 1},), [[(1j,)]]),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_has_no_digest_is_sent_as_ever(item):
    """Floats among them: they are compared with a tolerance."""
    arrived = cross([item] * LONG)
    assert isinstance(arrived, list)
    assert len(arrived) == LONG


def test_a_list_that_contains_itself_has_no_digest():
    items = [0] * LONG
    items.append(items)
    assert encoding.compute_digest(items) is None


def test_a_short_value_is_no_digest():
    assert cross([[0] * 9] * 100) == [[0] * 9] * 100


# Different numbers, and tuples of them, with one hash.
ALIKE = [{"int": hex(k * (2**61 - 1))} for k in range(20_000)]


@pytest.mark.parametrize(
    "data",
    [
        {"frozenset": ALIKE},
        {"dict": [[key, 0] for key in ALIKE]},
        {"set": [{"tuple": [key]} for key in ALIKE]},
    ],
    ids=["frozenset", "dict", "tuples"],
)
def test_values_made_to_collide_are_refused_quickly(data):
    start = time.process_time()
    with pytest.raises(ValueError, match="collide"):
        encoding.decode(data)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("value", [[], 1, "a,b", [1, [2, {"a": 3}]], {(1, 2): [3]}, [[]] * 9])
def test_values_are_counted_without_reading_them(value):
    def count(data):
        if isinstance(data, dict):
            data = list(data.values())
        return 1 + sum(map(count, data)) if isinstance(data, list) else 1

    encoded = encoding.encode(value)
    assert encoding.count_values(json.dumps(encoded).encode()) >= count(encoded)
