"""The token-level log importance weight of one completion, as a coloured strip with its text."""

from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Rectangle
from pydantic import ValidationError

from rapid.algorithms.names import parse
from rapid.artifacts.runs import TokenWeights
from rapid.config.jobs import plan
from rapid.config.params import Params
from rapid.config.specs import runs
from reports import notes
from reports.collect import BadRun
from reports.formats import correlation
from reports.plots import style
from reports.plots.style import Figure

FILE = "token_weights.json"  # in the folder of a run with H > 1
COLUMNS = 86  # characters a line
LINE, BAR = 2.2, 0.55  # heights of a line of text and of the longest bar, in lines of type


def figure(params: Params, root: Path) -> Figure:
    path = find(params, root)
    title = "Token-level importance weights of one completion"
    if path is None:
        return Figure(
            name="tokens",
            title=title,
            caption="The log importance weight of each token of one completion.",
            draw=_placeholder,
            missing=[f"no run wrote {FILE}, the completion that this figure is drawn from"],
        )
    record = read(root / path)
    total = correlation(sum(record.log_weights))
    return Figure(
        name="tokens",
        title=title,
        caption=(
            f"A completion for {record.id} of {notes.benchmark(record.benchmark)} at optimizer step "
            f"{record.step}, H = {record.H}. Colour and bar are the token's log importance weight "
            f"(up: more likely now than when sampled); their sum, the completion's, is {total}."
        ),
        draw=lambda: _draw(record),
        sources=[path],
    )


def find(params: Params, root: Path) -> str | None:
    """The first run that wrote one, largest H first: where weights differ most from 1."""
    by_h = sorted(runs(params), key=lambda run: -parse(run.algorithm).H)
    place = plan(params, root).folder
    paths = (f"{place(run.folder)}/{FILE}" for run in by_h)
    return next((path for path in paths if (root / path).is_file()), None)


def read(path: Path) -> TokenWeights:
    """Raises: BadRun: it is not such a record."""
    try:
        return TokenWeights.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise BadRun(f"{path}: {error}") from None


def layout(tokens: list[str]) -> list[tuple[int, int, str]]:
    """Line, column and printed text of each token: lines break at COLUMNS and after a newline."""
    line = column = 0
    placed = []
    for token in tokens:
        text = printed(token)
        if column and column + len(text) > COLUMNS:
            line, column = line + 1, 0
        placed.append((line, column, text))
        column += len(text)
        if "\n" in token:
            line, column = line + 1, 0
    return placed


def printed(token: str) -> str:
    """Spaces and newlines as signs; what has no glyph as a middle dot. Never empty."""
    shown = token.replace("\n", "\u21b5").replace(" ", "\u00b7" if not token.strip() else " ")
    return "".join(c if c.isprintable() else "\u00b7" for c in shown)[:COLUMNS] or "\u2205"


def _draw(record: TokenWeights):
    placed = layout(record.tokens)
    lines = placed[-1][0] + 1
    largest = max(max(map(abs, record.log_weights)), 1e-3)
    norm, colors = TwoSlopeNorm(0, -largest, largest), matplotlib.colormaps["PuOr_r"]
    with plt.rc_context(style.SETTINGS):
        canvas, axes = plt.subplots(figsize=(style.WIDTH, 0.75 + 0.34 * lines))
    for (line, column, text), weight in zip(placed, record.log_weights, strict=True):
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


def _placeholder():
    with plt.rc_context(style.SETTINGS):
        canvas, axes = plt.subplots(figsize=(style.WIDTH, 0.8))
    axes.spines[:].set_visible(False)
    style.empty(axes, f"not drawn: no run wrote {FILE}")
    return canvas
