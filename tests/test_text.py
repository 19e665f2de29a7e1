"""Formatting of durations, sizes, lists and tables as text."""

import pytest

from rapid.text import (
    align_columns,
    format_duration,
    format_size,
    join_words,
    render_markdown_table,
)


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
        (100 * 3600 + 59 * 60, "4d 5h"),  # to the nearest hour
    ],
)
def test_durations_have_a_unit_of_their_size(seconds, text):
    assert format_duration(seconds) == text


def test_sizes_have_decimal_units():
    assert (format_size(2.5e9), format_size(3.2e6)) == ("2.5 GB", "3.2 MB")


def test_words_are_joined_with_commas_and_and():
    assert [join_words(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_columns_are_as_wide_as_their_longest_cell():
    rows = [["name", "n"], ["a", "100"]]
    assert align_columns(rows) == ["name  n", "a     100"]
    assert align_columns(rows, flush_left=1) == ["name    n", "a     100"]
    assert align_columns(rows, rule=True) == ["name  n", "----  ---", "a     100"]


def test_columns_after_the_first_are_right_aligned_in_markdown():
    assert (
        render_markdown_table(["name", "n"], [["a", "1"]])
        == "| name | n |\n| --- | --: |\n| a | 1 |\n"
    )
