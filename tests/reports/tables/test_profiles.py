"""Performance profiles of the arena, against shares by hand."""

import pytest

from rapid.artifacts.evaluations import CurvePoint
from rapid.config.params import load
from rapid.config.specs import BASE, list_arena_runs
from reports.outcomes import list_fields
from reports.report_data import ReportData
from reports.tables.profiles import build_profile_table
from tests.reports.conftest import add_arena, make_run

SOLVED = {"pg": (2, 6), "grpo": (8, 8)}  # of ten problems, by seed; the target is five


@pytest.fixture
def outcomes(values, runs):
    """Return the end points of a field with two seeds; DAPO has no runs."""
    params = load(add_arena(values, dict.fromkeys([*SOLVED, "dapo"], 1e-4)))
    for seed in (1, 2):
        runs.write_scores(make_run(BASE, seed), [8] + [0] * 9)
    for run in list_arena_runs(params):
        if solved := SOLVED.get(run.algorithm.split(",")[0]):
            count = solved[run.seed - 1]
            runs.write_scores(run, [8] * count + [0] * (10 - count))
            runs.write_summary(run, 40, completions=64, optimizer_steps=16)
            runs.write_curve(run, CurvePoint(step=8, seconds=20, pass_at={1: 0.1}))
    (field,) = list_fields(ReportData.read(params, runs.root, list_arena_runs(params)))
    return field


def test_profile_has_the_share_of_trainings_that_reach_each_accuracy(outcomes):
    table = build_profile_table([outcomes], 1)
    titles = table.groups[0].columns
    cells = {row.label: dict(zip(titles, row.cells[0], strict=True)) for row in table.rows}
    assert [cells[name]["Never"].text for name in ("GRPO", "PG", "DAPO")] == ["0", "1", "0"]
    shares = {name: [cells[name][t].text for t in ("60.0%", "65.0%", "80.0%")] for name in cells}
    assert shares == {
        "GRPO": ["100.0%"] * 3, "PG": ["50.0%", "0.0%", "0.0%"], "DAPO": ["\N{EM DASH}"] * 3
    }  # fmt: skip
    # Every training reaches 20 %, and none more than 80 %.
    assert titles[1] == "25.0%" and titles[-1] == "80.0%"
    (note,) = table.notes
    assert note.startswith("A performance profile of 2 trainings of each algorithm, but 0 of DAPO.")


def test_trainings_of_several_runs_of_an_arena_are_counted_together(outcomes):
    table = build_profile_table([outcomes, outcomes], 1)
    (note,) = table.notes
    assert "both runs of the arena, 4 trainings of each algorithm" in note
