"""Assigns a look (colour, marker, dash) to each algorithm and variant in the figures of a report.

No two have the same marker or dash, so that they can be told apart in greyscale. An algorithm
declares its look for each H (optimizer steps per inference batch). If another one already has that
look, which happens for two H with one look, for variants of an algorithm, and for similar
algorithms, it gets the next free marker and dash, and a shade of its colour.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import eq

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from rapid.algorithms.base import Look
from rapid.algorithms.names import parse
from rapid.config.specs import BASE
from reports.measured import Measured

UNKNOWN = Look("#555555", "*")  # of an algorithm that the project does not have
DARKEST = 0.6  # largest share of black or white that is mixed into a shade
GOLDEN = 0.618034  # golden ratio: its multiples modulo 1 are evenly spread, however many are used
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
ALIKE = 1.5  # lengths of dashes or gaps with a smaller ratio look alike


@dataclass(frozen=True)
class SeriesLook:
    """The look of an algorithm or variant in all figures of a report.

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
    def hollow(self) -> bool:
        """Whether the marker is not filled."""
        return self.marker[1]

    @property
    def markers(self) -> dict[str, str]:
        """The marker as keyword arguments of `Axes.plot`."""
        face = "white" if self.hollow else self.color
        return {"marker": self.marker[0], "markerfacecolor": face}


def declared_look(name: str) -> Look:
    """Return the look that an algorithm, or the algorithm of a variant, declares for its H."""
    try:
        parsed = parse(name)
    except ValueError:  # an algorithm that the project does not have
        return UNKNOWN
    return parsed.algorithm.get_look(parsed.H)


def looks_of_report(measured: Measured) -> dict[str, SeriesLook]:
    """Return the looks of the algorithms in Tables 1 and 3, which all figures share."""
    return assign_looks(name for name in measured.rows(measured.algorithms) if name != BASE)


def assign_looks(names: Iterable[str]) -> dict[str, SeriesLook]:
    """Return distinct looks for algorithms and variants, by name.

    Algorithms come first, so that they keep the looks that they declare, and variants get others.
    """
    declared = {name: declared_look(name) for name in sorted(names, key=lambda name: "," in name)}
    own_markers = {name: (look.marker, False) for name, look in declared.items()}
    own_dashes = {name: _to_dash(look.line) for name, look in declared.items()}
    looks: dict[str, SeriesLook] = {}
    for name, own in declared.items():
        taken = looks.values()
        shades = sum(declared[other].color == own.color for other in looks)
        looks[name] = SeriesLook(
            _shade(own.color, shades),
            _choose(own_markers[name], MARKERS, [look.marker for look in taken], own_markers, eq),
            _choose(own_dashes[name], DASHES, [look.dash for look in taken], own_dashes, is_alike),
        )
    return looks


def _choose(own, spares: Sequence, taken: Sequence, declared: dict, alike: Callable):
    """Return the marker or dash of an algorithm: its own if that is free, else a spare one.

    Args:
        own: as the algorithm declares it.
        spares: further ones.
        taken: by algorithms before it.
        declared: by name, as all algorithms declare them. A spare one that another algorithm
            declares is avoided.
        alike: returns whether two look alike.
    """

    def cost(choice) -> tuple[int, bool]:
        is_declared = any(alike(choice, other) for other in declared.values())
        return sum(alike(choice, other) for other in taken), choice is not own and is_declared

    return min([own, *spares], key=cost)


def _to_dash(line: str | tuple) -> tuple[float, ...]:
    """Return the dashes and gaps of a line style in matplotlib's form."""
    return () if line == "-" else line[1]


def is_alike(dash: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two dashes look alike: equally many parts, each of about the same length."""
    return len(dash) == len(other) and all(
        max(lengths) < ALIKE * min(lengths) for lengths in zip(dash, other, strict=True)
    )


def _shade(color: str, number: int) -> str:
    """Return a shade of a colour, mixed with black if it is light and with white if it is dark.

    Args:
        number: of the shade; 0 is the colour itself.
    """
    channels, share = to_rgb(color), DARKEST * (number * GOLDEN % 1)
    other = 0.0 if np.dot(LUMA, channels) > 0.4 else 1.0
    return to_hex([(1 - share) * channel + share * other for channel in channels]).upper()
