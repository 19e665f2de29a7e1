"""The token-level log importance weight of one completion, as a coloured strip with its text."""

import matplotlib
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Rectangle

from rapid.artifacts.manifests import read_result
from rapid.artifacts.runs import TOKEN_WEIGHTS as FILE
from rapid.artifacts.runs import TokenWeights
from rapid.config.specs import BASE
from reports.formats import correlation
from reports.measured import Measured
from reports.plots import style
from reports.plots.style import Figure

COLUMNS = 86  # characters a line
LINE, BAR = 2.2, 0.55  # heights of a line of text and of the longest bar, in lines of type


def figure(measured: Measured) -> Figure:
    """Return the strip of the run with the largest H, or a placeholder without one."""
    title = "Token-level importance weights of one completion"
    path, record = _find_record(measured)
    if record is None:
        return Figure(
            title=title,
            caption="The log importance weight of each token of one completion.",
            draw=_draw_placeholder,
            problems=[*measured.problems.values()],
            missing=[f"no run wrote {FILE}, the completion that this figure is drawn from"],
        )
    total = correlation(sum(record.log_weights))
    return Figure(
        title=title,
        caption=(
            f"A completion for {record.id} of {measured.label(record.benchmark)} at optimizer "
            f"step {record.step}, H = {record.H}. Colour and bar are the token's log importance "
            f"weight (up: more likely now than when sampled); their sum, the completion's, "
            f"is {total}."
        ),
        draw=lambda: _draw(record),
        problems=[measured.problems[record.benchmark]],
        sources=[path],
    )


def _find_record(measured: Measured) -> tuple[str, TokenWeights | None]:
    """Return the first run's that wrote one, largest H first: there weights differ most from 1."""
    trained = measured.frame[measured.frame.algorithm != BASE]
    by_h = trained.sort_values("H", ascending=False, kind="stable")
    paths = (f"{folder}/{FILE}" for folder in by_h.folder)
    records = ((path, read_result(measured.root / path, TokenWeights)) for path in paths)
    return next(((path, record) for path, record in records if record), ("", None))


def place_tokens(tokens: list[str]) -> list[tuple[int, int, str]]:
    """Return line, column and printed text of each token.

    Lines break at COLUMNS and after a newline.
    """
    line = column = 0
    placed_tokens = []
    for token in tokens:
        text = show_token(token)
        if column and column + len(text) > COLUMNS:
            line, column = line + 1, 0
        placed_tokens.append((line, column, text))
        column += len(text)
        if "\n" in token:
            line, column = line + 1, 0
    return placed_tokens


def show_token(token: str) -> str:
    """Return a token with signs for spaces and newlines; what has no glyph is a middle dot."""
    text = token.replace("\n", "\u21b5").replace(" ", "\u00b7" if not token.strip() else " ")
    return "".join(c if c.isprintable() else "\u00b7" for c in text)[:COLUMNS] or "\u2205"


def _draw(record: TokenWeights):
    placed_tokens = place_tokens(record.tokens)
    lines = placed_tokens[-1][0] + 1
    largest = max(max(map(abs, record.log_weights)), 1e-3)
    norm, colors = TwoSlopeNorm(0, -largest, largest), matplotlib.colormaps["PuOr_r"]
    canvas, ((axes,),) = style.create_canvas(0.75 + 0.34 * lines)
    for (line, column, text), weight in zip(placed_tokens, record.log_weights, strict=True):
        y, color = -LINE * line, colors(norm(weight))
        box = Rectangle((column, y - 0.5), len(text), 1, facecolor=color, edgecolor="white", lw=0.4)
        axes.add_patch(box)
        dark = sum(color[:3]) < 1.3
        axes.text(
            column + len(text) / 2, y, text, family="monospace", fontsize=6.4, ha="center",
            va="center", color="white" if dark else "black", parse_math=False,
        )  # fmt: skip
        height = BAR * weight / largest
        axes.add_patch(Rectangle((column, y + 1.05), len(text), height, color="black", lw=0))
    axes.set(xlim=(0, COLUMNS), ylim=(-LINE * lines + 1, 1.8))
    axes.axis("off")
    bar = canvas.colorbar(
        matplotlib.cm.ScalarMappable(norm, colors), ax=axes, orientation="horizontal",
        fraction=0.04, aspect=60, pad=0.01,
    )  # fmt: skip
    bar.set_label("log importance weight of the token")
    return canvas


def _draw_placeholder():
    canvas, ((axes,),) = style.create_canvas(0.8)
    axes.spines[:].set_visible(False)
    style.draw_empty(axes, f"not drawn: no run wrote {FILE}")
    return canvas
