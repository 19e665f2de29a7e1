"""The figures: what is in them, that they are drawn whatever is missing, and the same each time."""

import numpy as np
import pytest

from rapid.artifacts.files import BadFile, write_json
from reports import contents, plots
from reports.collect import collect
from reports.measured import Measured
from reports.plots import learning, style
from reports.plots.figures import phases, tokens
from tests.reports.conftest import run_of

RUN = run_of("rapid-H4")
WEIGHTS = {
    "tokens": ["The ", "answer\n", "is", " 4$_{$", "\x00", ""],
    "log_weights": [0.0, 0.1, -0.4, 0.02, 0.0, 0.0],
    "H": 4,
    "step": 7,
    "benchmark": "math",
    "id": "p1",
}


def build(params, runs):
    return plots.build("report", Measured.read(params, runs.root))


def weights(runs, run=RUN, **change):
    path = runs.root / run.folder / tokens.FILE
    write_json(path, WEIGHTS | change)
    runs.seal(path)


@pytest.mark.slow
@pytest.mark.parametrize("complete", [True, False])
def test_every_figure_is_drawn_twice_the_same(params, runs, complete):
    if complete:
        runs.all(params)
        weights(runs)
    figures = build(params, runs)
    first, second = (
        {name: style.render(figure) for name, figure in by_name.items()}
        for by_name in (figures, build(params, runs))
    )
    assert first == second
    assert len(first) == 7
    assert [bool(figure.missing) for figure in figures.values()] == [not complete] * 7


def test_segments_add_up_to_the_runtime(params, runs):
    runs.all(params)
    frame = collect(params, runs.root)
    rapid = frame[(frame.algorithm == "rapid-H4") & (frame.benchmark == "math")]
    seconds = phases.mean_segments(rapid)
    assert sum(seconds.values()) == pytest.approx(rapid.runtime.mean())
    assert seconds["sampling"] == pytest.approx(rapid["runtime.sampling"].mean())


def test_a_moving_mean_by_hand():
    assert learning.moving_mean(np.array([1.0, 3, 5, 7]), 2) == pytest.approx([2, 4, 6])


def test_curves_are_averaged_where_all_runs_have_values():
    slow = (np.array([0.0, 10.0]), np.array([0.0, 1.0]))
    fast = (np.array([2.0, 6.0]), np.array([0.5, 0.5]))
    x, mean, deviation = learning.average_curves([slow, fast])
    assert (x[0], x[-1]) == (2, 6)
    assert (mean[0], mean[-1]) == (pytest.approx(0.35), pytest.approx(0.55))
    assert deviation[0] == pytest.approx(np.std([0.2, 0.5], ddof=1))
    assert learning.average_curves([slow])[2] is None


def test_token_weights_are_of_the_run_with_the_largest_h(params, runs):
    (missing,) = build(params, runs)["tokens"].missing
    assert missing.startswith("no run wrote token_weights.json")
    weights(runs)
    weights(runs, run_of("rapid-H2"), H=2)
    figure = build(params, runs)["tokens"]
    assert figure.sources == [f"{RUN.folder}/token_weights.json"]
    assert "step 7, H = 4" in figure.caption and "is −0.280" in figure.caption


@pytest.mark.parametrize("change", [{"log_weights": [0.0]}, {"tokens": [], "log_weights": []}])
def test_token_weights_that_contradict_themselves_are_an_error(params, runs, change):
    weights(runs, **change)
    with pytest.raises(BadFile, match=r"token_weights\.json"):
        build(params, runs)


def test_no_token_is_lost_and_lines_fit():
    placed_tokens = tokens.place_tokens(["ab"] * 100 + ["x\n", "y", ""])
    assert len(placed_tokens) == 103
    assert all(text and column + len(text) <= tokens.COLUMNS for _, column, text in placed_tokens)
    assert placed_tokens[100][2] == "x\u21b5"
    assert placed_tokens[101][:2] == (placed_tokens[100][0] + 1, 0)


def test_a_figure_that_no_section_names_is_at_the_end_of_the_report(params, runs):
    """A new module in plots/figures is drawn, and shown, without another change."""
    content = contents.build_report(Measured.read(params, runs.root))
    *named, more = content.with_figures([*plots.FIGURES, "new"])
    assert more.items == ["new"]
    assert content.with_figures(plots.FIGURES) == named
    names = [item for section in named for item in section.items if isinstance(item, str)]
    assert sorted([content.figure, *names]) == sorted(plots.FIGURES)
