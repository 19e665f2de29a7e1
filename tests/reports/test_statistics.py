"""Means, ranks and correlations against values worked out by hand."""

import math

import pytest

from reports.statistics import correlate, marks, spread

NAN = math.nan


def test_spread_divides_by_n_minus_one():
    # mean 4; squared deviations 4 + 0 + 4 = 8; 8 / (3 - 1) = 4; root 2
    result = spread([2.0, 4.0, 6.0])
    assert (result.mean, result.deviation, result.n) == (4.0, 2.0, 3)


@pytest.mark.parametrize(
    ("values", "mean", "deviation", "n"),
    [
        ([], None, None, 0),
        ([NAN], None, None, 0),
        ([5.0], 5.0, None, 1),
        ([NAN, 5.0], 5.0, None, 1),
    ],
)
def test_spread_of_too_few(values, mean, deviation, n):
    result = spread(values)
    assert (result.mean, result.deviation, result.n) == (mean, deviation, n)


@pytest.mark.parametrize(
    ("values", "higher", "expected"),
    [
        ([1, 3, 2], True, ["", "best", "runner-up"]),
        ([1, 3, 2], False, ["best", "", "runner-up"]),
        ([None, 3, 2], False, ["", "runner-up", "best"]),
        ([3, 3, 2], True, ["best", "best", ""]),  # no second place after two firsts
        ([3, 2, 2], True, ["best", "runner-up", "runner-up"]),
        ([3, None], True, ["", ""]),
        ([None, None], True, ["", ""]),
        ([3, 3], True, ["", ""]),  # all equal: nobody won
        ([], True, []),
    ],
)
def test_marks(values, higher, expected):
    assert marks(values, higher) == expected


def test_correlation_by_hand():
    # x - 14/3: -8/3, -2/3, 10/3; y - 7/3: -4/3, -1/3, 5/3. y is half of x: r = 1.
    assert correlate([2, 4, 8], [1, 2, 4]).r == pytest.approx(1)
    # x - 2: -1, 0, 1; y - 2: 0, -1, 1 -> 1 / sqrt(2 * 2) = 0.5
    assert correlate([1, 2, 3], [2, 1, 3]).r == pytest.approx(0.5)


def test_correlation_leaves_out_runs_without_a_value():
    result = correlate([1, 2, 3, 9], [2, 1, 3, NAN])
    assert (result.r, result.n) == (pytest.approx(0.5), 3)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([1, 2], [1, 2], "needs 3"),
        ([], [], "needs 3"),
        ([4, 4, 4], [1, 2, 3], "same H"),
        ([1, 2, 3], [0, 0, 0], "same value"),
    ],
)
def test_correlation_that_has_no_value(x, y, reason):
    result = correlate(x, y)
    assert result.r is None
    assert reason in result.reason
