"""How numbers are printed."""

import pytest

from reports import formats


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
