"""Ratios of times to policy gradient's in the table of a field."""

import math

import pandas as pd
import pytest

from reports.outcomes import FieldOutcomes, Outcome
from reports.statistics import times
from reports.tables.standings import CENSORED, STANDINGS, estimate_time_ratio

SECONDS = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0]


@pytest.fixture
def outcomes() -> FieldOutcomes:
    """Return the end points of PG, of an algorithm of half its times, and of one that may fail."""
    all_seconds = {
        "pg": SECONDS,
        "grpo": [0.5 * seconds for seconds in SECONDS],
        "dapo": [math.inf, math.inf, *SECONDS[2:]],
    }
    field = FieldOutcomes("math", None, None)
    vars(field)["outcomes"] = {
        name: Outcome(pd.DataFrame({"seed": range(8)}), pd.Series(seconds), None, None)
        for name, seconds in all_seconds.items()
    }
    return field


def test_ratio_without_an_end_is_replaced_by_the_median_ratio(outcomes):
    assert outcomes.compare("dapo", "pg", "seconds").high == math.inf
    ratio = estimate_time_ratio(outcomes, "dapo")
    expected = times.median_ratio(*outcomes.pair_seconds("dapo", "pg"))
    assert (ratio.value, ratio.low, ratio.high) == (expected.value, expected.low, expected.high)
    assert ratio.reason == CENSORED


def test_cell_of_a_replaced_ratio_says_so(outcomes):
    (column,) = (column for column in STANDINGS if column.title == "Ratio to PG")
    assert column.build_cell(outcomes, "dapo").reason == CENSORED
    assert column.build_cell(outcomes, "grpo").reason == ""
    assert column.build_cell(outcomes, "grpo").text == "0.50"
