"""Content of the figures, missing files, and identical drawings of the same runs."""

import numpy as np
import pytest

from rapid.artifacts.files import BadFile, write_json
from reports import contents, plots
from reports.collect import collect_runs
from reports.paper_style import PLAIN_STYLE
from reports.plots import learning, style
from reports.plots.figures import phases, tokens
from reports.report_data import ReportData
from tests.reports.conftest import make_run
from tests.reports.plots.drawn import draw

RUN = make_run("rapid-H4")
WEIGHTS = {
    "tokens": ["The ", "answer\n", "is", " 4$_{$", "\x00", ""],
    "log_weights": [0.0, 0.1, -0.4, 0.02, 0.0, 0.0],
    "H": 4,
    "step": 7,
    "benchmark": "math",
    "id": "p1",
}


def build_figures(params, runs):
    return plots.build_figures("report", ReportData.read(params, runs.root))


def write_token_weights(runs, run=RUN, **change):
    """Write a run's token weights, with these fields changed."""
    path = runs.root / run.folder / tokens.FILE
    write_json(path, WEIGHTS | change)
    runs.add_to_manifest(path)


@pytest.mark.slow
@pytest.mark.parametrize("complete", [True, False])
def test_figures_are_drawn_identically_each_time(params, runs, complete):
    if complete:
        runs.write_all(params)
        write_token_weights(runs)
    figures = build_figures(params, runs)
    first, second = (
        {name: style.render(figure) for name, figure in by_name.items()}
        for by_name in (figures, build_figures(params, runs))
    )
    assert first == second
    assert len(first) == 7
    assert [bool(figure.missing) for figure in figures.values()] == [not complete] * 7


def test_mean_segments_add_up_to_the_mean_runtime(params, runs):
    runs.write_all(params)
    frame = collect_runs(params, runs.root)
    rapid = frame[(frame.algorithm == "rapid-H4") & (frame.benchmark == "math")]
    seconds = phases.mean_segments(rapid)
    assert sum(seconds.values()) == pytest.approx(rapid.runtime.mean())
    assert seconds["sampling"] == pytest.approx(rapid["runtime.sampling"].mean())


def test_panels_of_phases_are_as_high_as_their_bars_need(params, runs, monkeypatch):
    """The other algorithms have no bars."""
    runs.write_all(params)
    data, heights = ReportData.read(params, runs.root), []
    monkeypatch.setattr(phases, "panel_figure", lambda *_, height, **__: heights.append(height))
    bar_count = max(len(phases._list_algorithms(r)) for r in data.runs_by_benchmark.values())
    assert bar_count < len(data.algorithms)
    for max_rows in (bar_count, bar_count - 1):
        monkeypatch.setattr(phases, "MAX_ROWS", max_rows)
        phases.figure(data)
    assert heights == [style.HEIGHT, style.HEIGHT + style.MIN_ROW_HEIGHT]


def test_moving_mean_equals_values_by_hand():
    assert learning.moving_mean(np.array([1.0, 3, 5, 7]), 2) == pytest.approx([2, 4, 6])


def test_curves_are_averaged_where_all_runs_have_values():
    slow = (np.array([0.0, 10.0]), np.array([0.0, 1.0]))
    fast = (np.array([2.0, 6.0]), np.array([0.5, 0.5]))
    x, mean, deviation = learning.average_curves([slow, fast])
    assert (x[0], x[-1]) == (2, 6)
    assert (mean[0], mean[-1]) == (pytest.approx(0.35), pytest.approx(0.55))
    assert deviation[0] == pytest.approx(np.std([0.2, 0.5], ddof=1))
    assert learning.average_curves([slow])[2] is None


def test_token_figure_shows_the_run_with_the_largest_h(params, runs):
    (missing,) = build_figures(params, runs)["tokens"].missing
    assert missing.startswith("no run wrote token_weights.json")
    write_token_weights(runs)
    write_token_weights(runs, make_run("rapid-H2"), H=2)
    figure = build_figures(params, runs)["tokens"]
    assert figure.sources == [f"{RUN.folder}/token_weights.json"]
    assert "step 7, H = 4" in figure.caption and "is −0.280" in figure.caption


@pytest.mark.parametrize("change", [{"log_weights": [0.0]}, {"tokens": [], "log_weights": []}])
def test_inconsistent_token_weights_are_an_error(params, runs, change):
    write_token_weights(runs, **change)
    with pytest.raises(BadFile, match=r"token_weights\.json"):
        build_figures(params, runs)


def test_every_token_is_placed_within_its_line():
    placed_tokens = tokens.place_tokens(["ab"] * 100 + ["x\n", "y", ""], columns=86)
    assert len(placed_tokens) == 103
    assert all(text and column + len(text) <= 86 for _, column, text in placed_tokens)
    assert placed_tokens[100][2] == "x\u21b5"
    assert placed_tokens[101][:2] == (placed_tokens[100][0] + 1, 0)


@pytest.mark.parametrize("text", [" word", "line\n", "\u4e2d\u6587"])
def test_a_long_completion_is_cut_with_a_note(params, runs, text):
    write_token_weights(runs, tokens=[text] * 5000, log_weights=[0.1] * 5000)
    canvas = draw(build_figures(params, runs)["tokens"])
    assert canvas.get_figheight() < PLAIN_STYLE.text_height - 1  # for its caption
    (axes, _) = canvas.axes
    (note,) = (text.get_text() for text in axes.texts if "5,000" in text.get_text())
    *shown, _ = (text.get_text() for text in axes.texts)
    assert note == f"\u2026 {len(shown):,} of 5,000 tokens are shown"
    assert 20 <= len(shown) < 1000
    assert set(shown) == {{"line\n": "line\u21b5", "\u4e2d\u6587": "U+4E2D U+6587"}.get(text, text)}


def test_figure_that_no_section_names_is_at_the_end_of_the_report(params, runs):
    """A new module in plots/figures is drawn and shown without any other change."""
    content = contents.build_report(ReportData.read(params, runs.root))
    *sections, last_section = content.list_sections([*plots.FIGURES, "new"])
    assert last_section.items == ["new"]
    assert content.list_sections(plots.FIGURES) == sections
    names = [item for section in sections for item in section.items if isinstance(item, str)]
    assert sorted([content.figure, *names]) == sorted(plots.FIGURES)
