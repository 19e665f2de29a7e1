"""Prepares the text of figures: replaces characters that the font lacks, and breaks lines."""

import textwrap
import unicodedata
from itertools import groupby

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags

from rapid.text import CONTROL_CATEGORIES

POINTS_PER_INCH = 72  # matplotlib's points
FREETYPE_UNITS = 64  # units per point: FreeType measures text in 1/64 points


def replace_unprintable(text: str, font: FontProperties) -> str:
    """Return a text with codes such as U+4E2D in place of characters that the font cannot print.

    Control characters other than line breaks are replaced too. Neighbouring codes are separated by
    spaces.
    """
    glyphs = get_font(findfont(font)).get_charmap()

    def is_missing(char: str) -> bool:
        is_control = unicodedata.category(char) in CONTROL_CATEGORIES
        return char != "\n" and (is_control or ord(char) not in glyphs)

    return "".join(
        " ".join(f"U+{ord(char):04X}" for char in chars) if missing else "".join(chars)
        for missing, chars in groupby(text, is_missing)
    )


def measure_width(text: str, font: FontProperties) -> float:
    """Return the width of the widest line of a text, in inches."""
    face = get_font(findfont(font))
    face.set_size(font.get_size_in_points(), POINTS_PER_INCH)
    widths = []
    for line in text.split("\n"):
        face.set_text(line, 0.0, LoadFlags.NO_HINTING)
        widths.append(face.get_width_height()[0])
    return max(widths) / FREETYPE_UNITS / POINTS_PER_INCH


def wrap_text(text: str, width: float, font: FontProperties) -> str:
    """Return a printable text, broken into lines of at most this width in inches.

    Lines are broken between words, and within a word that is wider than a line. Line breaks of the
    text stay.
    """
    text = lines = replace_unprintable(text, font)
    columns = len(text)
    while columns > 1 and measure_width(lines, font) > width:
        columns -= 1
        lines = "\n".join(
            textwrap.fill(line, columns, break_on_hyphens=False) for line in text.split("\n")
        )
    return lines
