"""The style of all figures, and their rendering to files. The same data give the same bytes.

A figure is as wide as the text or a column of the paper, and its type is as large as the paper's
footnotes, so that a paper can include it without scaling. The user's settings of matplotlib have no
effect. Colours are Okabe and Ito's, which colour-blind readers can distinguish. In greyscale,
markers, dashes and hatches distinguish the same things. Only `reports.plots` imports matplotlib.
"""

import io
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib import rcParams
from matplotlib import style as settings
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from rapid.benchmarks.problem_source import ProblemSource, describe_sources
from reports.paper_style import PLAIN_STYLE, PaperStyle
from reports.plots.lettering import POINTS_PER_INCH, measure_width, replace_unprintable, wrap_text
from reports.plots.series_styles import SeriesStyle

BLACK, ORANGE, SKY, BLUE, RED = "#000000", "#E69F00", "#56B4E9", "#0072B2", "#D55E00"
GREY = "#555555"
DASHED, DOTTED = (0, (6, 3)), (0, (1, 2))  # line styles of reference values
HEIGHT = 2.05  # height in inches of a row of panels, without the head above and the legend below
MIN_TYPE_SIZES = 8.0, 7.0  # smallest size of type in points: of labels, and of numbers and notes
# Share of an x-axis that is left free beyond the largest value, so that no marker is cut off.
FREE_SHARE = 0.08
MIN_ROW_HEIGHT = 0.15  # smallest height of a named row, in inches
MAX_NAME_SHARE = 0.4  # largest share of a figure's width for the names of rows
LEADING = 1.25  # height of a line of text, relative to its size of type
MARGIN = 0.1  # inches that text leaves free at the edges of the canvas
LEGEND_ENTRY = 4.6  # width of a legend entry without its label, relative to the size of type
LegendEntries = dict[str, object]  # label -> matplotlib artist with the style

SETTINGS = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "grid.color": "#E2E2E2",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.handletextpad": 0.6,
    "legend.columnspacing": 1.4,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,  # TrueType, because some publishers refuse matplotlib's Type 3
    "svg.hashsalt": "rapid",
    "text.hinting": "no_hinting",  # text has the same width in PDF, PNG and SVG
    "text.parse_math": False,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class Figure:
    """A figure that is not drawn yet.

    Args:
        draw: draws the figure with a width in inches.
        problems: sources of the problems that the figure is about. Its caption and its drawing name
            them.
        missing: runs that the figure does not show, with the reasons.
        sources: files that the figure is made from, as paths below the root.
        wide: whether the figure is as wide as the text of a page; otherwise it is as wide as a
            column of the text.
    """

    title: str
    caption: str
    draw: Callable[[float], Canvas]
    problems: Sequence[ProblemSource]
    missing: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    wide: bool = True

    @property
    def full_caption(self) -> str:
        """The caption with a sentence on the source of the problems."""
        return f"{self.caption} {describe_sources(self.problems)}".rstrip()


def use_style(page: PaperStyle) -> AbstractContextManager:
    """Return a context with matplotlib's default settings, changed by SETTINGS and the page."""
    # Labels are as large as TeX's footnotesize, numbers and notes are smaller.
    smallest_labels, smallest_numbers = MIN_TYPE_SIZES
    label_size = max(smallest_labels, 0.8 * page.type_size)
    number_size = max(smallest_numbers, 0.7 * page.type_size)
    sizes = dict.fromkeys(["xtick.labelsize", "ytick.labelsize", "legend.fontsize"], number_size)
    sizes |= {"font.size": label_size, "axes.titlesize": label_size}
    return settings.context(["default", SETTINGS | sizes])


def get_note_font() -> FontProperties:
    """Return the font of numbers, legends and notes in the current style."""
    return FontProperties(size=rcParams["legend.fontsize"])


def create_canvas(
    width: float, height: float, rows: int = 1, columns: int = 1, **options
) -> tuple[Canvas, list]:
    """Return a matplotlib figure of a size in inches, and the rows of its panels."""
    canvas = Canvas(figsize=(width, height))
    axes = canvas.subplots(rows, columns, squeeze=False, **options)
    return canvas, [list(row) for row in axes]


def set_title(axes: Axes, text: str) -> None:
    """Set the title of a panel, broken into lines that fit its width."""
    width = axes.figure.get_figwidth() / axes.get_subplotspec().get_gridspec().ncols
    axes.set_title(wrap_text(text, width - MARGIN, axes.title.get_fontproperties()))


def name_rows(axes: Axes, names: Sequence[str]) -> int:
    """Set the names of a panel's rows from top to bottom, broken into lines of limited width.

    Returns:
        The largest number of lines of a name.
    """
    room = MAX_NAME_SHARE * axes.figure.get_figwidth()
    texts = [wrap_text(name, room, get_note_font()) for name in names]
    axes.set_yticks(range(len(texts)), texts)
    axes.set_ylim(len(texts) - 0.5, -0.5)
    return max(text.count("\n") + 1 for text in texts)


def draw_line(
    axes: Axes,
    series_style: SeriesStyle,
    x: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray | None = None,
    marker_every: int = 29,
) -> object:
    """Draw a line with a band of one standard deviation around it; return the line.

    `marker_every`: every so many points have a marker; by default 7 of the 200 points of a curve.
    """
    (line,) = axes.plot(
        x,
        mean,
        color=series_style.color,
        ls=series_style.line,
        markevery=marker_every,
        **series_style.markers,
    )
    if deviation is not None:
        low, high = mean - deviation, mean + deviation
        axes.fill_between(x, low, high, color=series_style.color, alpha=0.13, lw=0)
    return line


def create_few_ticks() -> MaxNLocator:
    """Return ticks for a narrow x-axis, so few that numbers of five digits do not overlap."""
    return MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])


def draw_empty(axes: Axes, text: str = "no data") -> LegendEntries:
    """Draw a text in place of data, and return legend entries, of which there are none."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)
    is_shared = len(axes.get_shared_y_axes().get_siblings(axes)) > 1
    # The first panel of a row keeps the numbers of a y-axis that the other panels share.
    has_numbers = is_shared and axes.get_subplotspec().is_first_col()
    axes.tick_params(bottom=False, left=has_numbers, labelbottom=False, labelleft=has_numbers)
    axes.grid(False)
    return {}


def draw_legend(canvas: Canvas, entries: LegendEntries) -> None:
    """Draw a legend below all panels, in as many columns as fit the width."""
    if not entries:
        return
    font, width = get_note_font(), canvas.get_figwidth() - MARGIN
    handle_width = LEGEND_ENTRY * font.get_size_in_points() / POINTS_PER_INCH
    labels = [wrap_text(label, width - handle_width, font) for label in entries]
    widest = handle_width + max(measure_width(label, font) for label in labels)
    rows = math.ceil(len(labels) / (int(width / widest) or 1))
    columns = math.ceil(len(labels) / rows)
    canvas.legend(entries.values(), labels, loc="outside lower center", ncols=columns)
    lines = max(label.count("\n") + 1 for label in labels)
    make_room_for_lines(canvas, rows * lines + 1)


def draw_head(canvas: Canvas, text: str) -> None:
    """Write a text above all panels."""
    font = get_note_font()
    text = wrap_text(text, canvas.get_figwidth() - 2 * MARGIN, font)
    x = MARGIN / canvas.get_figwidth()
    canvas.suptitle(text, x=x, ha="left", color=GREY, fontproperties=font)
    make_room_for_lines(canvas, text.count("\n") + 1)


def make_room_for_lines(canvas: Canvas, count: float) -> None:
    """Make a figure higher by lines of text, so that its panels keep their height."""
    height = count * LEADING * rcParams["legend.fontsize"] / POINTS_PER_INCH
    canvas.set_figheight(canvas.get_figheight() + height)


# Metadata without dates and versions, so that the same figure has the same bytes.
METADATA = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}
# Kind of file -> key of its description in the metadata.
DESCRIPTION_KEYS = {"pdf": "Subject", "png": "Description", "svg": "Description"}


def render(
    figure: Figure, kinds: Sequence[str] = tuple(METADATA), page: PaperStyle = PLAIN_STYLE
) -> dict[str, bytes]:
    """Return the files of a figure by kind. Their metadata name the source of the problems."""
    streams = {kind: io.BytesIO() for kind in kinds}
    problems = describe_sources(figure.problems)
    with use_style(page):
        canvas = lay_out(figure, page)
        for kind, stream in streams.items():
            metadata = METADATA[kind] | ({DESCRIPTION_KEYS[kind]: problems} if problems else {})
            canvas.savefig(stream, format=kind, dpi=200, metadata=metadata)
    return {kind: stream.getvalue() for kind, stream in streams.items()}


def lay_out(figure: Figure, page: PaperStyle) -> Canvas:
    """Draw a figure for a page, with the source of its problems above it, and lay it out."""
    canvas = figure.draw(page.text_width if figure.wide else page.column_width)
    draw_head(canvas, describe_sources(figure.problems))
    for text in canvas.findobj(Text):
        text.set_text(replace_unprintable(text.get_text(), text.get_fontproperties()))
    canvas.draw_without_rendering()
    canvas.set_layout_engine("none")  # keep this layout in all kinds of files
    return canvas


def save_figures(rendered: dict[str, dict[str, bytes]], folder: Path) -> list[Path]:
    """Write NAME.pdf and NAME.png for each figure into a folder, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, files in rendered.items():
        for kind in ("pdf", "png"):
            paths.append(folder / f"{name}.{kind}")
            paths[-1].write_bytes(files[kind])
    return paths
