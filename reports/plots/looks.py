"""The look of each line of a report: no two share a marker or a dash, so that grey print suffices.

An algorithm declares a colour, a marker and a line for each H. Where an earlier line has them (two
H of one look, a variant, two algorithms alike) the next free ones are taken, and a shade of the
colour.
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

UNKNOWN = Look("#555555", "*")
DARKEST = 0.6  # share of black in a shade, or of white
GOLDEN = 0.618034  # its multiples, modulo 1, lie far from each other
LUMA = 0.299, 0.587, 0.114  # of red, green and blue
# To choose from. The numbers of markers and dashes are coprime: their pairs repeat late.
MARKERS = [(shape, hollow) for hollow in (False, True) for shape in "osD^vXP<>*pdh"]
DASHES: list[tuple[float, ...]] = [
    *((1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2), (8, 2), (1, 4), (2, 4), (4, 4), (8, 4)),
    *((4, 1, 1, 1), (9, 1, 1, 1), (4, 2, 1, 2), (9, 2, 1, 2), (9, 2, 4, 2), (4, 4, 1, 1)),
    *((9, 4, 1, 1), (4, 3, 1, 3), (9, 3, 3, 3), (4, 1, 1, 1, 1, 1), (9, 1, 1, 1, 1, 1)),
    *((4, 2, 1, 2, 1, 2), (9, 2, 4, 2, 1, 2), (12, 2, 12, 2, 1, 2)),
    *((4, 1, 1, 1, 1, 1, 1, 1), (9, 1, 1, 1, 1, 1, 1, 1)),
]
ALIKE = 1.5  # dashes and gaps whose lengths have a smaller ratio look alike


@dataclass(frozen=True)
class SeriesLook:
    """The look of a series in the figures of a report."""

    color: str
    marker: tuple[str, bool]  # its shape, and whether it is hollow
    dash: tuple[float, ...]  # lengths of dashes and gaps in widths of the line; () if solid

    @property
    def line(self) -> str | tuple:
        """The line as matplotlib has it."""
        return (0, self.dash) if self.dash else "-"

    @property
    def hollow(self) -> bool:
        """Whether the marker is not filled."""
        return self.marker[1]

    @property
    def markers(self) -> dict[str, str]:
        """The marker as arguments of `Axes.plot`."""
        face = "white" if self.hollow else self.color
        return {"marker": self.marker[0], "markerfacecolor": face}


def declared_look(name: str) -> Look:
    """Return the look that an algorithm declares with its H; its variants have it too."""
    try:
        parsed = parse(name)
    except ValueError:  # an algorithm that the project does not have
        return UNKNOWN
    return parsed.algorithm.get_look(parsed.H)


def looks_of_report(measured: Measured) -> dict[str, SeriesLook]:
    """Return the looks of the algorithms of Tables 1 and 3, the same in all figures."""
    return assign_looks(name for name in measured.rows(measured.algorithms) if name != BASE)


def assign_looks(names: Iterable[str]) -> dict[str, SeriesLook]:
    """Return a look of its own for each of the algorithms and variants of a report.

    Algorithms keep the look that they declare before their variants get one.
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
    """Return a marker or dash: `own` if it is free, else a spare one that none has or declares."""

    def cost(choice) -> tuple[int, bool]:
        is_declared = any(alike(choice, other) for other in declared.values())
        return sum(alike(choice, other) for other in taken), choice is not own and is_declared

    return min([own, *spares], key=cost)


def _to_dash(line: str | tuple) -> tuple[float, ...]:
    """Return the dashes and gaps of a line as an algorithm declares it."""
    return () if line == "-" else line[1]


def is_alike(dash: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two dashes look alike: as many parts, each of about the same length."""
    return len(dash) == len(other) and all(
        max(lengths) < ALIKE * min(lengths) for lengths in zip(dash, other, strict=True)
    )


def _shade(color: str, number: int) -> str:
    """Return a shade of a colour: a light one with some black, a dark one with some white."""
    channels, share = to_rgb(color), DARKEST * (number * GOLDEN % 1)
    other = 0.0 if np.dot(LUMA, channels) > 0.4 else 1.0
    return to_hex([(1 - share) * channel + share * other for channel in channels]).upper()
