"""The encoding keeps values as they are, and hostile values take the grader little time."""

import itertools
import json
import time
from collections import Counter

import pytest

from rapid.grading.code.runner import encoding


def encode_and_decode(value):
    return encoding.decode(json.loads(json.dumps(encoding.encode_output(value))))


VALUES = [
    None, True, [1, 2.5, "a", "\udcff", float("inf")], (1, (2, [3])), {1: (2,), (3, 4): {5}},
    {frozenset({1}), frozenset()}, 2**63, -(16**5000), 1 + 2j, b"\x00\xff", {}, set(), (),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_survives_encoding_and_decoding(value):
    arrived = encode_and_decode(value)
    assert arrived == value
    assert type(arrived) is type(value)


@pytest.mark.parametrize(
    "data",
    [{"tuple": 1}, {"int": "x"}, {"a": 1}, {}, {"dict": [1]}, {"set": [[]]}, {"object": [1]}],
)
def test_data_that_no_encoder_writes_is_refused(data):
    with pytest.raises((ValueError, TypeError)):
        encoding.decode(data)


MANY_ITEMS = 1001


@pytest.fixture(autouse=True)
def small_limits_of_digests(monkeypatch):
    """A value of a thousand items gets a digest, which is computed in ten parts."""
    monkeypatch.setattr(encoding, "MAX_ENCODED_ITEMS", MANY_ITEMS - 1)
    monkeypatch.setattr(encoding, "_HASHED_AT_A_TIME", 100)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["a"] * MANY_ITEMS, ["".join(["", "a"]) for _ in range(MANY_ITEMS)]),
        ([("x", "yz")] * MANY_ITEMS, [(c, "yz") for c in itertools.repeat("xyz"[0], MANY_ITEMS)]),
        ([2**70 + i for i in range(MANY_ITEMS)], [(2**70 * 3) // 3 + i for i in range(MANY_ITEMS)]),
        ([{"b", "a"}] * MANY_ITEMS, [{"a", "b"} for _ in range(MANY_ITEMS)]),
        (
            (None, True) * MANY_ITEMS,
            tuple(itertools.islice(itertools.cycle([None, True]), 2 * MANY_ITEMS)),
        ),
        (["\udcff\0é"] * MANY_ITEMS, ["\udcff" + "\0é"] * MANY_ITEMS),
        (
            [tuple(range(77))] * (MANY_ITEMS // 70),
            [tuple(range(77)) for _ in range(MANY_ITEMS // 70)],
        ),
    ],
    ids=lambda items: type(items[0]).__name__,
)
def test_equal_long_values_have_equal_digests(first, second):
    """It makes no difference whether items are shared, interned, or parts of other objects."""
    assert isinstance(encode_and_decode(first), encoding.Digest)
    assert encode_and_decode(first) == encode_and_decode(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1] * MANY_ITEMS, [True] * MANY_ITEMS),
        ([1] * MANY_ITEMS, (1,) * MANY_ITEMS),
        ([1] * MANY_ITEMS, [1] * (MANY_ITEMS + 1)),
        (["1"] * MANY_ITEMS, [1] * MANY_ITEMS),
        ([""] * MANY_ITEMS + ["ab"], [""] * MANY_ITEMS + ["ba"]),
        ([(1, 2), (3,)] * MANY_ITEMS, [(1,), (2, 3)] * MANY_ITEMS),
    ],
    ids=lambda items: type(items[0]).__name__,
)
def test_different_long_values_have_different_digests(first, second):
    assert encode_and_decode(first) != encode_and_decode(second)


@pytest.mark.parametrize(
    "item",
    [
        *(0.5, Counter("a"), 1j, object(), type("Int", (int,), {})(1)),
        *((object(),), [0.5], ({"a": 1},), [[(1j,)]]),
    ],
    ids=lambda item: type(item).__name__,
)
def test_long_values_without_a_digest_are_sent_in_full(item):
    """Floats are among them, because they are compared with a tolerance."""
    arrived = encode_and_decode([item] * MANY_ITEMS)
    assert isinstance(arrived, list)
    assert len(arrived) == MANY_ITEMS


def test_a_list_that_contains_itself_has_no_digest():
    items = [0] * MANY_ITEMS
    items.append(items)
    assert encoding.compute_digest(items) is None


def test_a_short_value_is_sent_in_full():
    assert encode_and_decode([[0] * 9] * 100) == [[0] * 9] * 100


# Different numbers, and tuples of them, with one hash.
COLLIDING_NUMBERS = [{"int": hex(k * (2**61 - 1))} for k in range(20_000)]


@pytest.mark.parametrize(
    "data",
    [
        {"frozenset": COLLIDING_NUMBERS},
        {"dict": [[key, 0] for key in COLLIDING_NUMBERS]},
        {"set": [{"tuple": [key]} for key in COLLIDING_NUMBERS]},
    ],
    ids=["frozenset", "dict", "tuples"],
)
def test_values_with_colliding_hashes_are_refused_quickly(data):
    start = time.process_time()
    with pytest.raises(ValueError, match="collide"):
        encoding.decode(data)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("value", [[], 1, "a,b", [1, [2, {"a": 3}]], {(1, 2): [3]}, [[]] * 9])
def test_the_count_of_values_in_an_unparsed_line_is_never_too_low(value):
    def count_exactly(data):
        if isinstance(data, dict):
            data = list(data.values())
        return 1 + sum(map(count_exactly, data)) if isinstance(data, list) else 1

    encoded = encoding.encode(value)
    assert encoding.count_values(json.dumps(encoded).encode()) >= count_exactly(encoded)
