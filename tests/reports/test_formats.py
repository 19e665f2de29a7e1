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
    assert formats.staleness(0.0002, mean=0.0031) == "0.0002"
    assert formats.staleness(0.0002, mean=0.31) == "0.00"


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


@pytest.mark.parametrize(
    ("means", "texts"),
    [
        ([0.004, 0.04, 0.049], ["4.00ms", "40.00ms", "49.00ms"]),
        ([2.306, 14.6], ["2.31s", "14.60s"]),
        ([59.9, 60.0, 599.0], ["59.9s", "60.0s", "599.0s"]),
        ([600.0, 3596.0], ["10.0min", "59.9min"]),
        ([5 * 3600, 12 * 3600], ["5.00h", "12.00h"]),
        ([100 * 3600 + 59 * 60], ["101h"]),  # to the nearest hour
    ],
)
def test_durations_of_a_column_have_one_unit_and_three_digits_or_more(means, texts):
    show = formats.choose_duration_format(means)
    assert [show(mean) for mean in means] == texts


def test_deviation_of_a_duration_has_the_unit_of_its_column():
    assert formats.choose_duration_format([5 * 3600])(3599, mean=5 * 3600) == "60min"


def test_negative_shares_have_a_minus_sign():
    assert formats.percent(-0.001) == "\N{MINUS SIGN}0.1%"


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.05, "0.050"), (0.0499, "0.0499"), (0.05001, "0.05001"), (0.0494, "0.049")],
)
def test_p_shows_on_which_side_of_the_level_it_is(p, text):
    assert formats.p_value(p) == text


def test_small_p_is_printed_as_a_bound():
    texts = formats.p_value(0.00099, "= "), formats.p_value(0.001), formats.p_value(0.0123, "= ")
    assert texts == ("< 0.001", "0.001", "= 0.012")


@pytest.mark.parametrize(
    "value, text", [(1.0175, "1.018"), (1.0145, "1.015"), (-0.86625, "\N{MINUS SIGN}0.8663")]
)
def test_plain_numbers_are_rounded_away_from_zero_despite_rounding_errors(value, text):
    for error in (-1e-14, 0, 1e-14):
        assert formats.plain(value + error) == text
