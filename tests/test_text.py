"""Durations, sizes, listings and tables as a reader sees them."""

import pytest

from rapid.text import columns, duration, listing, markdown, size


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
        (71 * 3600, "71h00m"),
        (76 * 3600, "3d 4h"),
        # Deviations are in the unit of their means.
        ((0.4, 8.3), "0.4s"),
        ((70, 8.3), "70.0s"),
        ((6, 762), "0.1m"),
        ((540, 16920), "9.0m"),
        ((5400, 16920), "1h30m"),
        ((540, 76 * 3600), "9.0m"),
    ],
)
def test_duration(seconds, text):
    assert duration(*(seconds if isinstance(seconds, tuple) else [seconds])) == text


def test_sizes_are_decimal():
    assert (size(2.5e9), size(3.2e6)) == ("2.5 GB", "3.2 MB")


def test_listing():
    assert [listing(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_columns_are_as_wide_as_their_longest_cell():
    rows = [["name", "n"], ["a", "100"]]
    assert columns(rows) == ["name  n", "a     100"]
    assert columns(rows, left=1) == ["name    n", "a     100"]
    assert columns(rows, rule=True) == ["name  n", "----  ---", "a     100"]


def test_markdown_has_its_figures_on_the_right():
    assert markdown(["name", "n"], [["a", "1"]]) == "| name | n |\n| --- | --: |\n| a | 1 |\n"
