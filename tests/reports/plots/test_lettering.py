"""Text in figures: characters that the font has, lines that fit."""

import pytest
from matplotlib.font_manager import FontProperties

from reports.plots.lettering import measure_width, replace_unprintable, wrap_text

SANS, MONO = (FontProperties(family=[family], size=7) for family in ("sans-serif", "monospace"))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("R² ≠ ½ α $x_1$ \\b %#{}", "R² ≠ ½ α $x_1$ \\b %#{}"),
        ("模型 A", "U+6A21 U+578B A"),
        ("a\x1b[0m\u202e\udc80", "aU+001B[0mU+202E U+DC80"),
        ("a\nb\tc", "a\nbU+0009c"),
        ("", ""),
    ],
)
def test_a_character_without_a_glyph_prints_as_its_number(text, printed):
    assert replace_unprintable(text, SANS) == printed


def test_replaced_characters_depend_on_the_font():
    assert replace_unprintable("\u05d0", SANS) == "\u05d0"
    assert replace_unprintable("\u05d0", MONO) == "U+05D0"


def test_wrapped_lines_fit_the_width():
    for text in ("many words of a label " * 9, "x" * 200, "W" * 10 + " i" * 90):
        lines = wrap_text(text, 1.5, SANS)
        assert measure_width(lines, SANS) <= 1.5
        assert lines.replace("\n", "").replace(" ", "") == text.replace(" ", "")
    assert wrap_text("short", 1.5, SANS) == "short"
    assert wrap_text("two short words", 0.6, SANS) == "two short\nwords"
    assert wrap_text("one\ntwo short words", 0.6, SANS) == "one\ntwo short\nwords"
