"""The look of figures, and the files that they become: the same bytes for the same data.

Colours are Okabe and Ito's, which colour-blind readers can distinguish. Markers, dashes and hatches
distinguish the same things in greyscale. Only `reports.plots` imports matplotlib.
"""

import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from rapid.algorithms.base import Look
from rapid.algorithms.names import parse
from rapid.benchmarks.problem_source import ProblemSource, describe_sources
from rapid.config.specs import BASE
from rapid.text import HOUR, MINUTE

BLACK, ORANGE, SKY, BLUE, RED = "#000000", "#E69F00", "#56B4E9", "#0072B2", "#D55E00"
GREY = "#555555"
WIDTH, HEIGHT = 7.4, 2.6  # inches of a row of panels
LINE = 120  # characters of a line above the panels

SETTINGS = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E2E2E2",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,
    "svg.hashsalt": "rapid",
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class Figure:
    """A figure that is drawn when asked for."""

    title: str
    caption: str
    draw: Callable[[], Canvas]
    problems: Sequence[ProblemSource]  # that it is about: caption and drawing say what they are
    missing: list[str] = field(default_factory=list)  # what is not in it and why
    sources: list[str] = field(default_factory=list)  # files below the root

    @property
    def full_caption(self) -> str:
        """The caption, with what the problems are."""
        return f"{self.caption} {describe_sources(self.problems)}".rstrip()


def look(algorithm: str) -> Look:
    """Return the look of an algorithm, the same in every figure."""
    if algorithm == BASE:
        return Look(BLACK, "x")
    try:
        parsed = parse(algorithm)
    except ValueError:  # an algorithm that the project does not have
        return Look(GREY, "*")
    return parsed.algorithm.get_look(parsed.H)


def create_canvas(height: float, rows: int = 1, columns: int = 1, **options) -> tuple[Canvas, list]:
    """Return a figure of this height in inches, and its panels row by row."""
    with plt.rc_context(SETTINGS):
        figure, axes = plt.subplots(
            rows, columns, figsize=(WIDTH, height), squeeze=False, **options
        )
    return figure, [list(row) for row in axes]


def draw_line(
    axes: Axes,
    algorithm: str,
    x: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray | None = None,
    marker_every: int = 29,
    label: str | None = None,
) -> None:
    """Draw a line in the look of an algorithm, with a band around it.

    Args:
        marker_every: points from one marker to the next.
    """
    own_look = look(algorithm)
    color, marks = own_look.color, {"marker": own_look.marker, "markevery": marker_every}
    axes.plot(x, mean, color=color, ls=own_look.line, label=label, **marks)
    if deviation is not None:
        axes.fill_between(x, mean - deviation, mean + deviation, color=color, alpha=0.13, lw=0)


def draw_empty(axes: Axes, text: str = "no runs") -> None:
    """Make a panel say that it has nothing to show."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def draw_legend(canvas: Canvas, row: list[Axes], columns: int = 6) -> None:
    """Draw one legend below all panels, of what any of them has."""
    entries = {}
    for axes in row:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        sizes = {"ncols": min(columns, len(entries)), "handlelength": 3}
        canvas.legend(entries.values(), entries.keys(), loc="outside lower center", **sizes)


def choose_time_unit(largest: float) -> tuple[float, str]:
    """Return by what to divide seconds up to `largest`, and the name of that unit."""
    if largest >= 2 * HOUR:
        return HOUR, "hours"
    return (MINUTE, "minutes") if largest >= 2 * MINUTE else (1, "seconds")


# Dates and versions are left out, so that the same figure has the same bytes. ABOUT: the key of a
# file's description.
METADATA = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}
ABOUT = {"pdf": "Subject", "png": "Description", "svg": "Description"}


def render(figure: Figure, kinds: Sequence[str] = tuple(METADATA)) -> dict[str, bytes]:
    """Return the figure as files of these kinds; each says what the problems are."""
    streams = {kind: io.BytesIO() for kind in kinds}
    problems = describe_sources(figure.problems)
    with plt.rc_context(SETTINGS):
        drawing = figure.draw()
        try:
            head = textwrap.fill(problems, LINE, break_long_words=False, break_on_hyphens=False)
            drawing.suptitle(head, x=0.01, ha="left", fontsize=7, color=GREY, parse_math=False)
            drawing.draw_without_rendering()
            drawing.set_layout_engine("none")  # it is laid out once for all kinds of files
            for kind, stream in streams.items():
                metadata = METADATA[kind] | ({ABOUT[kind]: problems} if problems else {})
                drawing.savefig(stream, format=kind, dpi=200, metadata=metadata)
        finally:
            plt.close(drawing)
    return {kind: stream.getvalue() for kind, stream in streams.items()}


def save(rendered: dict[str, dict[str, bytes]], folder: Path) -> list[Path]:
    """Write name.pdf and name.png for each figure, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, files in rendered.items():
        for kind in ("pdf", "png"):
            paths.append(folder / f"{name}.{kind}")
            paths[-1].write_bytes(files[kind])
    return paths
