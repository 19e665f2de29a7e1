"""How numbers are printed."""

import pytest

from reports import formats


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (8.34, "8.3s"),
        (59.94, "59.9s"),
        (59.97, "1.0m"),  # not 60.0s
        (60, "1.0m"),
        (762, "12.7m"),
        (3596, "59.9m"),
        (3598, "1h00m"),  # not 60.0m
        (16920, "4h42m"),
        (14880, "4h08m"),
        (7199, "2h00m"),  # not 1h60m
        (100 * 3600, "100h00m"),
    ],
)
def test_duration(seconds, text):
    assert formats.duration(seconds) == text


@pytest.mark.parametrize(
    ("deviation", "mean", "text"),
    [
        (0.4, 8.3, "0.4s"),
        (70, 8.3, "70.0s"),
        (6, 762, "0.1m"),
        (540, 16920, "9.0m"),
        (5400, 16920, "1h30m"),
    ],
)
def test_a_deviation_is_in_the_unit_of_its_mean(deviation, mean, text):
    assert formats.duration(deviation, like=mean) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00"), (0.08, "0.08"), (0.005, "0.01"), (0.0031, "0.0031"), (0.0005, "0.00050"),
     (1.25, "1.25"), (1e-9, "0.00")],
)  # fmt: skip
def test_staleness(value, text):
    assert formats.staleness(value) == text


def test_a_deviation_of_staleness_has_the_digits_of_its_mean():
    assert formats.staleness(0.0002, like=0.0031) == "0.0002"
    assert formats.staleness(0.0002, like=0.31) == "0.00"


def test_percent_is_of_a_share():
    assert formats.percent(0.1234) == "12.3%"
    assert formats.percent(1) == "100.0%"


def test_correlation_has_a_true_minus_and_no_negative_zero():
    assert formats.correlation(-0.3881) == "−0.388"
    assert formats.correlation(-0.0001) == "0.000"


def test_listing():
    assert [formats.listing(list("abc")[:n]) for n in range(4)] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
