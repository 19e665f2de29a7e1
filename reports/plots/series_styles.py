"""Assigns a colour, marker and dash to each algorithm and variant in the figures of a report.

No two lines of a report have the same marker or dash while spare ones are left, so that they can be
told apart in greyscale.
An algorithm declares its style for each H (number of optimizer steps per inference batch). If an
earlier line already has this style, the line gets the next free marker and dash, and a shade of its
colour. This happens if an algorithm declares one style for two H, for variants of an algorithm, and
for similar algorithms.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import eq

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from rapid.algorithms.base import PlotStyle
from rapid.algorithms.variant_names import parse_variant_name
from rapid.config.specs import BASE
from reports.report_data import ReportData

OTHER_STYLE = PlotStyle("#555555", "*")  # of an algorithm that the project does not have
MAX_MIXTURE = 0.6  # largest share of black or white that is mixed into a shade
GOLDEN_RATIO = 0.618034  # its first n multiples modulo 1 are evenly spread, for every n
LUMA = 0.299, 0.587, 0.114  # weights of red, green and blue in a colour's brightness
# Spare markers, as (shape, is hollow), and spare dashes, as lengths of dashes and gaps in turn.
MARKERS = [(shape, hollow) for hollow in (False, True) for shape in "osD^vXP<>*pdh"]
DASHES: list[tuple[float, ...]] = [
    *((1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2), (8, 2), (1, 4), (2, 4), (4, 4), (8, 4)),
    *((4, 1, 1, 1), (9, 1, 1, 1), (4, 2, 1, 2), (9, 2, 1, 2), (9, 2, 4, 2), (4, 4, 1, 1)),
    *((9, 4, 1, 1), (4, 3, 1, 3), (9, 3, 3, 3), (4, 1, 1, 1, 1, 1), (9, 1, 1, 1, 1, 1)),
    *((4, 2, 1, 2, 1, 2), (9, 2, 4, 2, 1, 2), (12, 2, 12, 2, 1, 2)),
    *((4, 1, 1, 1, 1, 1, 1, 1), (9, 1, 1, 1, 1, 1, 1, 1)),
]
SIMILAR_RATIO = 1.5  # two lengths of dashes or gaps with a smaller ratio look alike


@dataclass(frozen=True)
class SeriesStyle:
    """The style of an algorithm or variant in all figures of a report.

    Args:
        marker: its shape, and whether it is hollow.
        dash: lengths of dashes and gaps in turn, in widths of the line; () for a solid line.
    """

    color: str
    marker: tuple[str, bool]
    dash: tuple[float, ...]

    @property
    def line(self) -> str | tuple:
        """The line style in matplotlib's form."""
        return (0, self.dash) if self.dash else "-"

    @property
    def is_hollow(self) -> bool:
        """True if the marker is not filled."""
        return self.marker[1]

    @property
    def markers(self) -> dict[str, str]:
        """The marker as keyword arguments of `Axes.plot`."""
        face = "white" if self.is_hollow else self.color
        return {"marker": self.marker[0], "markerfacecolor": face}


def get_declared_style(name: str) -> PlotStyle:
    """Return the style that an algorithm declares, for the H in a name such as rapid-H4,eta=4."""
    try:
        parsed = parse_variant_name(name)
    except ValueError:  # an algorithm that the project does not have
        return OTHER_STYLE
    return parsed.algorithm.get_plot_style(parsed.H)


def assign_report_styles(data: ReportData) -> dict[str, SeriesStyle]:
    """Return the styles of the algorithms in Tables 1 and 3, for all figures of the main report."""
    return assign_styles(name for name in data.label_rows(data.algorithms) if name != BASE)


def assign_styles(names: Iterable[str]) -> dict[str, SeriesStyle]:
    """Return distinct styles for algorithms and variants, by name.

    Algorithms come first, so that they keep the styles that they declare, and variants get others.
    """
    declared = {
        name: get_declared_style(name)
        for name in sorted(names, key=lambda name: "," in name)  # variants have a comma
    }
    markers = {name: (look.marker, False) for name, look in declared.items()}
    dashes = {name: () if look.line == "-" else look.line[1] for name, look in declared.items()}
    styles: dict[str, SeriesStyle] = {}
    for name, look in declared.items():
        taken = styles.values()
        shades = sum(declared[earlier].color == look.color for earlier in styles)
        styles[name] = SeriesStyle(
            _shade_color(look.color, shades),
            _choose(markers[name], MARKERS, [used.marker for used in taken], markers, eq),
            _choose(dashes[name], DASHES, [used.dash for used in taken], dashes, is_alike),
        )
    return styles


def _choose(preferred, spares: Sequence, taken: Sequence, declared: dict, is_equal: Callable):
    """Return the marker or dash of an algorithm: the preferred one if it is free, or else a spare.

    A spare that another algorithm declares is avoided if possible. If no candidate is free, one
    that the fewest algorithms have is returned.
    """

    def compute_cost(candidate) -> tuple[int, bool]:
        is_declared = any(is_equal(candidate, other) for other in declared.values())
        is_spare = candidate is not preferred
        return sum(is_equal(candidate, other) for other in taken), is_spare and is_declared

    return min([preferred, *spares], key=compute_cost)


def is_alike(dash: Sequence[float], second_dash: Sequence[float]) -> bool:
    """Return whether two dashes have the same number of parts, and parts of similar lengths."""
    return len(dash) == len(second_dash) and all(
        max(lengths) < SIMILAR_RATIO * min(lengths)
        for lengths in zip(dash, second_dash, strict=True)
    )


def _shade_color(color: str, number: int) -> str:
    """Return a shade of a colour, mixed with black if it is light and with white if it is dark.

    Shade 0 is the colour itself.
    """
    channels, share = to_rgb(color), MAX_MIXTURE * (number * GOLDEN_RATIO % 1)
    mixed_in = 0.0 if np.dot(LUMA, channels) > 0.4 else 1.0
    return to_hex([(1 - share) * channel + share * mixed_in for channel in channels]).upper()
