"""Formatting of numbers in reports."""

import math

import pytest

from reports import formats


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00"), (0.08, "0.08"), (0.005, "0.01"), (0.0031, "0.0031"), (0.0005, "0.00050"),
     (1.25, "1.25"), (1e-9, "0.00")],
)  # fmt: skip
def test_staleness_has_two_digits_or_more_for_small_values(value, text):
    assert formats.staleness(value) == text


def test_deviation_of_staleness_has_the_digits_of_its_mean():
    assert formats.staleness(0.0002, like=0.0031) == "0.0002"
    assert formats.staleness(0.0002, like=0.31) == "0.00"


@pytest.mark.parametrize("share", [0.5125, 0.5135, 0.0005, 0.9995])  # 100.0%
def test_halfway_values_are_rounded_away_from_zero_despite_rounding_errors(share):
    near = [share, math.nextafter(share, 0), math.nextafter(share, 1), share + 1e-15]
    by_hand = f"{math.floor(1000 * share + 0.5001) / 10:.1f}"
    assert {formats.percent(value) for value in near} == {f"{by_hand}%"}
    assert {formats.points(value) for value in near} == {f"+{by_hand}"}
    assert {formats.points(-value) for value in near} == {f"\N{MINUS SIGN}{by_hand}"}
    assert formats.percent(share - 1e-6) == f"{float(by_hand) - 0.1:.1f}%"


def test_zero_difference_has_no_sign():
    assert [formats.points(share) for share in (0, 0.0004, -0.0004)] == ["0.0"] * 3


def test_correlation_has_a_minus_sign_and_no_negative_zero():
    assert formats.correlation(-0.3881) == "−0.388"
    assert formats.correlation(-0.0001) == "0.000"


def test_small_p_is_printed_as_a_bound():
    texts = formats.p_value(0.00099, "= "), formats.p_value(0.001), formats.p_value(0.0123, "= ")
    assert texts == ("< 0.001", "0.001", "= 0.012")
