"""The runtime of a run: its phases add up to the total."""

import pytest

from rapid.artifacts.runs import Runtime


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ({"sampling": 60, "backpropagation": 30}, r"total: 100\.0 s, but its phases take 90\.0 s"),
        ({"sampling": 103, "other": -3}, r"other: -3\.0 s is below 0: .* together take"),
    ],
)
def test_contradictory_phases_are_refused_with_the_reason(seconds, message):
    with pytest.raises(ValueError, match=message):
        Runtime(total=100, **seconds)


def test_other_may_be_below_zero_by_inaccurate_clocks():
    assert Runtime(total=100, sampling=100.5, other=-0.5).other == -0.5
