"""The map of the arena (the effect of H at each N_step) as a table and as a figure."""

import pytest

from rapid.config.params import load
from rapid.config.specs import list_arena_runs
from reports.plots.arena import build_figures
from reports.report_data import ReportData
from reports.tables.intervals import NO_PAIR, NO_RUNTIME_PAIR
from reports.tables.maps import build_map_tables
from tests.reports.conftest import add_arena
from tests.reports.plots.drawn import draw

# By H: seconds, and problems (of ten) that two seeds solve.
RUNS = {1: (40.0, (5, 5)), 4: (10.0, (6, 8))}


@pytest.fixture
def data(values, runs):
    """Return the runs of a map with two N_step; with N_step = 16 and H = 4 there are none."""
    values = add_arena(values, {"pg": 1e-4, "grpo": 1e-4})
    cells = {"seeds": 2, "problems": 64, "n_step": [4, 16], "H": [1, 4], "rate": 1e-4}
    values["arena"]["maps"] = {"math": cells}
    params = load(values)
    for n_step, h in ((4, 1), (4, 4), (16, 1)):
        name = params.arena.maps["math"].run_name(n_step, h)
        for run in list_arena_runs(params):
            if run.algorithm == name:
                seconds, solved = RUNS[h]
                count = solved[run.seed - 1]
                runs.write_scores(run, [8] * count + [0] * (10 - count))
                runs.write_summary(run, seconds)
    return ReportData.read(params, runs.root, list_arena_runs(params))


def test_table_compares_each_h_with_the_first(data):
    (table,) = build_map_tables(data, 7)
    assert (table.number, table.label) == (7, "tab:arena-map-math")
    cells = {row.label: row.cells[0] for row in table.rows}
    assert [*cells] == ["N_step = 4, H = 4", "N_step = 16, H = 4"]
    saving, gain = cells["N_step = 4, H = 4"]
    assert saving.one_line == "75%"
    assert gain.text == "+20.0" and float(gain.deviation) > 0
    reasons = [cell.reason for cell in cells["N_step = 16, H = 4"]]
    assert reasons == [NO_RUNTIME_PAIR, NO_PAIR]
    assert "H = 1 and the same N_step" in table.notes[0]


def test_figure_shows_no_interval_of_the_first_h_against_itself(data):
    _, gains = draw(build_figures(data)["arena-map"]).axes
    texts = [text.get_text() for text in gains.texts]
    first, second, *_ = texts
    assert first == "0.0" and second.startswith("+20.0\n±")
