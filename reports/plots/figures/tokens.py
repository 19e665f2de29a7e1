"""The importance weight of each token of one completion, as coloured text with bars.

A training run writes these weights to FILE, token_weights.json. H is the number of optimizer steps
per inference batch.
"""

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle

from rapid.artifacts.manifests import read_result
from rapid.artifacts.runs import TOKEN_WEIGHTS as FILE
from rapid.artifacts.runs import TokenWeights
from rapid.config.specs import BASE
from reports.formats import correlation
from reports.plots import style
from reports.plots.lettering import POINTS_PER_INCH, replace_unprintable
from reports.plots.style import Figure
from reports.report_data import ReportData

MAX_LINES = 20  # largest number of lines of the completion that are drawn
HEIGHT = 0.29  # height of a line in inches
CHARACTER_WIDTH = 0.602  # width of a character in a monospace font, relative to the font's size
# Heights of a line of text with its bars, and of the longest bar, relative to a token's box.
LINE, BAR = 2.2, 0.55


def figure(data: ReportData) -> Figure:
    """Return the figure for the run with the largest H, or a placeholder if there is no record."""
    title = "Token-level importance weights of one completion"
    path, record = _find_record(data)
    if record is None:
        return Figure(
            title=title,
            caption="The log importance weight of each token of one completion.",
            draw=_draw_placeholder,
            problems=[*data.problems.values()],
            missing=[f"no run wrote {FILE}, from which this figure is drawn"],
        )
    total = correlation(sum(record.log_weights))  # in the format of correlations: three decimals
    benchmark = data.label_benchmark(record.benchmark)
    return Figure(
        title=title,
        caption=(
            f"A completion for the problem {record.id} of {benchmark} at "
            f"optimizer step {record.step}, H = {record.H}. Colour and bar show the log importance "
            "weight of each token (upwards: more likely now than when it was sampled). The log "
            f"importance weight of the completion, their sum, is {total}."
        ),
        draw=lambda width: _draw_tokens(record, width),
        problems=[data.problems[record.benchmark]],
        sources=[path],
    )


def _find_record(data: ReportData) -> tuple[str, TokenWeights | None]:
    """Return the path and content of FILE of the run with the largest H that wrote it.

    With a large H, weights differ most from 1. The result is "" and None if no run wrote FILE.
    """
    trained = data.frame[data.frame.algorithm != BASE]
    by_h = trained.sort_values("H", ascending=False, kind="stable")
    paths = (f"{folder}/{FILE}" for folder in by_h.folder)
    records = ((path, read_result(data.root / path, TokenWeights)) for path in paths)
    return next(((path, record) for path, record in records if record), ("", None))


def place_tokens(tokens: list[str], columns: int) -> list[tuple[int, int, str]]:
    """Return the line, column and printed text of each token in the first MAX_LINES lines.

    A line breaks before a token that would exceed its number of columns, and after a newline.
    """
    font = FontProperties(family=["monospace"])
    line = column = 0
    placed_tokens = []
    for token in tokens:
        text = show_token(token, font)[:columns]
        if column and column + len(text) > columns:
            line, column = line + 1, 0
        if line == MAX_LINES:
            break
        placed_tokens.append((line, column, text))
        column += len(text)
        if "\n" in token:
            line, column = line + 1, 0
    return placed_tokens


def show_token(token: str, font: FontProperties) -> str:
    """Return a token with visible signs for newlines and for tokens of spaces or of no text."""
    text = token.replace("\n", "\u21b5").replace(" ", "\u00b7" if not token.strip() else " ")
    return replace_unprintable(text, font) or "\u2205"


def _draw_tokens(record: TokenWeights, width: float):
    size = style.get_note_font().get_size_in_points()
    columns = int((width - style.MARGIN) * POINTS_PER_INCH / (CHARACTER_WIDTH * size))
    placed_tokens = place_tokens(record.tokens, columns)
    lines, shown, total = placed_tokens[-1][0] + 1, len(placed_tokens), len(record.tokens)
    largest = max(max(map(abs, record.log_weights)), 1e-3)
    norm, colors = TwoSlopeNorm(0, -largest, largest), matplotlib.colormaps["PuOr_r"]
    color_bar_height = 0.75  # inches
    canvas, ((axes,),) = style.create_canvas(width, color_bar_height + HEIGHT * lines)
    for place, weight in zip(placed_tokens, record.log_weights, strict=False):
        _draw_token(axes, place, colors(norm(weight)), BAR * weight / largest)
    if shown < total:
        note = f"\u2026 {shown:,} of {total:,} tokens are shown"
        axes.text(0, -LINE * lines, note, fontsize=size, va="center", color=style.GREY)
        style.make_room_for_lines(canvas, count=2)  # the note and a space above it
        lines += 1
    top = 1.8  # half a box (0.5), the longest bar down and up (2 BAR), and a margin
    axes.set(xlim=(0, columns), ylim=(-LINE * lines + 1, top))
    axes.axis("off")
    bar = canvas.colorbar(
        matplotlib.cm.ScalarMappable(norm, colors), ax=axes, orientation="horizontal",
        fraction=0.04, aspect=60, pad=0.01,
    )  # fmt: skip
    bar.set_label("log importance weight of the token")
    return canvas


def _draw_token(axes: Axes, place: tuple[int, int, str], color: tuple, bar: float) -> None:
    """Draw a token that `place_tokens` placed, with a bar of this height, which may be negative."""
    line, column, text = place
    y, width = -LINE * line, len(text)
    box = Rectangle((column, y - 0.5), width, 1, facecolor=color, edgecolor="white", lw=0.4)
    axes.add_patch(box)
    # Bars start at BAR above the box, so that the longest one downwards ends at the box.
    axes.add_patch(Rectangle((column, y + 1.05), width, bar, color="black", lw=0))
    axes.text(
        column + width / 2, y, text, family="monospace", ha="center", va="center",
        fontsize=style.get_note_font().get_size(),
        color="white" if sum(color[:3]) < 1.3 else "black",  # white on dark colours
    )  # fmt: skip


def _draw_placeholder(width: float):
    canvas, ((axes,),) = style.create_canvas(width, 0.8)
    axes.spines[:].set_visible(False)
    style.draw_empty(axes, f"not drawn: no run wrote {FILE}")
    return canvas
