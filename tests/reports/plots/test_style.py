"""Figures fit the page of a paper, whatever labels and runs they are made of."""

import re
import warnings
from itertools import pairwise

import matplotlib
import pytest
from matplotlib.text import Text

from rapid.algorithms import ALGORITHMS
from rapid.artifacts.files import write_jsonl
from rapid.artifacts.runs import StepRecord
from rapid.config.params import load
from rapid.config.specs import list_table_runs
from reports import plots
from reports.paper_style import PaperStyle, load_styles
from reports.plots import style
from reports.plots.lettering import replace_unprintable
from reports.report_data import ReportData
from tests.reports.plots.drawn import draw

SETTINGS_OF_A_USER = {
    "axes.facecolor": "red", "axes.formatter.use_locale": True, "figure.dpi": 50,
    "font.sans-serif": ["No Such Font"], "font.size": 30, "lines.linewidth": 9,
    "savefig.bbox": "tight", "savefig.pad_inches": 3, "svg.fonttype": "none",
    "text.usetex": True,
}  # fmt: skip
LABELS = {
    "pg": r"$\frac{a}$ {b} \pm 100% #1 & ~^",
    "grpo": "_hidden",
    "dapo": "$\u4e2d\u6587$ \u05d0 \U0001f600 \x1b[0m \u00bd \u2260",
    "sft": "a label of many words that says at length what was tried, " * 3,
    "naive-grpo": "x" * 150,
}
PAGES = {name: PaperStyle(**values) for name, values in load_styles().items()}


@pytest.fixture
def labelled(monkeypatch):
    """Algorithms with labels that are hard to print."""
    for name, label in LABELS.items():
        monkeypatch.setattr(type(ALGORITHMS[name]), "label", label)


def build_all_figures(values, runs) -> dict[str, style.Figure]:
    params = load(values)
    runs.write_all(params)
    return plots.build_figures("report", ReportData.read(params, runs.root))


@pytest.fixture
def figures(values, runs):
    return build_all_figures(values, runs)


def test_settings_of_the_user_change_nothing(figures):
    for name in ("tradeoff", "learning-by-time"):
        rendered = style.render(figures[name])
        with matplotlib.rc_context(SETTINGS_OF_A_USER):
            assert style.render(figures[name]) == rendered


def test_a_figure_of_several_panels_is_as_wide_as_the_text(figures):
    for page in PAGES.values():
        assert pdf_width(figures["tradeoff"], page) == pytest.approx(page.text_width)


def test_a_figure_of_one_panel_is_as_wide_as_a_column(values, runs):
    del values["benchmarks"]["math"], values["studies"]
    figures = build_all_figures(values, runs)
    for page in PAGES.values():
        assert pdf_width(figures["tradeoff"], page) == pytest.approx(page.column_width)
        assert pdf_width(figures["tokens"], page) == pytest.approx(page.text_width)


def pdf_width(figure, page) -> float:
    """Return the width in inches that TeX gives the figure."""
    box = re.search(rb"/MediaBox \[ ?([\d. ]+)\]", style.render(figure, ["pdf"], page)["pdf"])
    return float(box[1].split()[2]) / 72


@pytest.mark.usefixtures("labelled")
@pytest.mark.parametrize("page", [PAGES["plain"], PAGES["acl"]], ids=["plain", "acl"])
def test_all_text_is_on_the_canvas_and_large_enough_to_read(figures, page):
    for name, figure in figures.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of glyphs that are missing, of parts without room
            canvas = draw(figure, page)
        for text in visible_texts(canvas):
            box = text.get_window_extent()
            assert text.get_fontsize() >= 0.7 * page.type_size, (name, text)
            assert min(box.x0, box.y0) > -1, (name, text)
            assert box.x1 < canvas.bbox.x1 + 1 and box.y1 < canvas.bbox.y1 + 1, (name, text)


def visible_texts(canvas) -> list[Text]:
    """Return the texts that are drawn: matplotlib has ticks beyond the end of an axis, too."""
    unseen = set()
    for axis in (axis for axes in canvas.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = (tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high)
        unseen |= {label for tick in ticks for label in (tick.label1, tick.label2)}
    texts = set(canvas.findobj(Text)) - unseen
    return [text for text in texts if text.get_text() and text.get_visible()]


@pytest.mark.usefixtures("labelled")
def test_labels_are_printed_as_they_are_written(figures):
    (legend,) = draw(figures["tradeoff"]).legends
    texts = [text.get_text().replace("\n", "") for text in legend.get_texts()]
    font = legend.get_texts()[0].get_fontproperties()
    for label in LABELS.values():
        assert replace_unprintable(label, font).replace(" ", "") in [
            text.replace(" ", "") for text in texts
        ]
    assert r"$U+4E2D U+6587$ א 😀 U+001B[0m ½ ≠" in texts


def test_a_text_that_a_figure_writes_itself_is_printable():
    def draw_label(width):
        canvas, ((axes,),) = style.create_canvas(width, 2)
        axes.set_xlabel("time \u4e2d")
        return canvas

    (axes,) = draw(style.Figure("", "", draw_label, [])).axes
    assert axes.get_xlabel() == "time U+4E2D"


@pytest.mark.usefixtures("labelled")
def test_pdfs_have_no_type_3_fonts(figures):
    for figure in figures.values():
        pdf = style.render(figure, ["pdf"])["pdf"]
        assert b"/Type3" not in pdf and b"/FontFile2" in pdf


def test_markers_of_equal_runtimes_are_within_their_panel(params, runs):
    runs.write_all(params)
    for run in list_table_runs(params):
        runs.write_summary(run, seconds=3600.0 + run.seed)
    canvas = draw(plots.build_figures("report", ReportData.read(params, runs.root))["tradeoff"])
    radius = 3 * canvas.dpi / 72
    for axes in canvas.axes:
        points = [axes.transData.transform(line.get_xydata()) for line in axes.lines[1:]]
        assert max(point.max(0)[0] for point in points if len(point)) + radius < axes.bbox.x1


@pytest.mark.parametrize(("name", "unit"), [("learning-by-time", "(h)"), ("learning-by-step", "")])
def test_axis_of_long_runs_has_few_ticks_without_overlap(params, runs, name, unit):
    runs.write_all(params)
    rows = [
        StepRecord(step=n, seconds=20.0 * n, loss=0.0, gradient_norm=1.0, reward=0.5)
        for n in range(1, 60_000, 600)
    ]
    for run in list_table_runs(params):
        write_jsonl(path := runs.root / run.folder / "steps.jsonl", rows)
        runs.add_to_manifest(path)
    canvas = draw(plots.build_figures("report", ReportData.read(params, runs.root))[name])
    for axes in canvas.axes:
        assert axes.get_xlabel().endswith(unit)
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert 3 <= len(boxes) <= 7
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_benchmark_without_runs_does_not_change_the_axes_of_others(params, runs):
    runs.write_all(params)
    for run in list_table_runs(params):
        if run.benchmark == "mbpp_plus":
            runs.delete(runs.root / run.folder / "steps.jsonl")
    figures = plots.build_figures("report", ReportData.read(params, runs.root))
    first, second = draw(figures["learning-by-step"]).axes
    assert [text.get_text() for text in first.texts] == ["no data"] and second.lines
    assert first.yaxis.get_tick_params()["labelleft"] and len(second.get_yticks()) > 2


def test_a_heading_wider_than_its_panel_is_wrapped():
    def draw_panels(width):
        canvas, (row,) = style.create_canvas(width, 2, columns=2)
        for axes in row:
            style.set_title(axes, "A benchmark with a name of many words (file)")
        return canvas

    left, right = draw(style.Figure("", "", draw_panels, [])).axes
    assert left._left_title.get_window_extent().x1 < right.bbox.x0
