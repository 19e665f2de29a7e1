"""Tables of a tuning: its trials, and its record with the chosen rates marked."""

import math

import pandas as pd

from rapid.config.params import load
from rapid.config.specs import list_arena_runs
from reports import contents
from reports.report_data import ReportData
from reports.tables.tuning import AT_EDGE, build_recorded_tables
from reports.tuning import COLUMNS

FIELD = {"seeds": 2, "problems": 4, "snapshots": 1, "reach": 0.1}
RATES = [1e-4, 1e-3, 1e-2]


def test_report_of_a_tuning_shows_its_trials(values, runs):
    rates = dict.fromkeys(["pg", "pg-H2", "pg-H4"], 1e-4)
    field = FIELD | {"rates": rates, "same_rate": {"pg-H2": "pg-H4"}}
    tuning = {"rates": {"math": RATES}, "seeds": [7]}
    arena = {"fields": {"math": field}, "tuning": tuning}
    params = load(values | {"arena": arena})
    for run in list_arena_runs(params):
        runs.write_scores(run, [8] * 5 + [0] * 5)
    for root, text in ((runs.root, "50.0%"), (runs.root / "none", "—")):
        content = contents.build_arena(ReportData.read(params, root, list_arena_runs(params)))
        (table,) = content.results
        assert table.number == 1
        assert [row.label for row in table.rows] == ["PG", "PG (H=4)"]
        assert {cell.text for cell in table.iterate_cells()} == {text}


# Record -------------------------------------------------------------------------------------------

# Mean accuracies by rate. Averaged with its neighbours, the 2nd, 3rd and 1st rate is best.
MEANS = {"pg": (0.2, 0.6, 0.1), "grpo": (0.2, 0.3, 0.6), "pg-H4": (0.6, 0.1, math.nan)}


def write_record(root, rows: list[tuple]) -> None:
    (root / "experiments").mkdir()
    file = root / "experiments/own-tuning.csv"
    pd.DataFrame(rows, columns=COLUMNS).to_csv(file, index=False)


def test_record_of_a_tuning_is_shown_as_means_with_the_best_marked(values, tmp_path):
    field = FIELD | {"rates": dict.fromkeys([*MEANS, "dapo"], 1e-4)}  # DAPO was not tried
    fields = {"math": field, "mbpp_plus": field}
    params = load(values | {"name": "own", "arena": {"fields": fields}})
    data = ReportData(params, pd.DataFrame(), tmp_path)
    assert build_recorded_tables(data, 5) == []

    rows = [("mbpp_plus", "pg", 1e-4, 7, 0.9), ("math", "base", 0.0, 7, 0.1)]
    rows += [
        ("math", name, rate, seed, mean + chance)
        for name, means in MEANS.items()
        for rate, mean in zip(RATES, means, strict=True)
        for seed, chance in ((7, -0.05), (8, 0.05))
    ]
    write_record(tmp_path, rows)
    math_table, mbpp = build_recorded_tables(data, 5)
    assert [table.number for table in (math_table, mbpp)] == [5, 6]
    assert math_table.groups[0].columns == ["0.0001", "0.001", "0.01"]
    assert {row.label: [cell.text for cell in row.cells[0]] for row in math_table.rows} == {
        "PG": ["20.0%", "60.0%", "10.0%"],
        "GRPO": ["20.0%", "30.0%", "60.0%"],
        "PG (H=4)": ["60.0%", "10.0%", "—"],
    }
    best = {row.label: [bool(cell.mark) for cell in row.cells[0]] for row in math_table.rows}
    assert [marked.index(True) for marked in best.values()] == [1, 2, 0]
    reasons = [[cell.reason for cell in row.cells[0] if cell.mark] for row in math_table.rows]
    assert reasons == [[""], [AT_EDGE], [AT_EDGE]]
    assert [row.label for row in mbpp.rows] == ["PG"]


def test_ties_of_the_highest_mean_are_marked(values, tmp_path):
    """The middle rate is 0.1 above the first in one seed and equal in another; the last is far."""
    field = FIELD | {"rates": {"pg": 1e-4, "grpo": 1e-4}}
    arena = {"fields": {"math": field}, "rate_rule": "highest"}
    data = ReportData(load(values | {"name": "own", "arena": arena}), pd.DataFrame(), tmp_path)
    by_rate = {1e-4: (0.5, 0.6, 0.5), 1e-3: (0.6, 0.6, 0.6), 1e-2: (0.1, 0.11, 0.1)}
    rows = [
        ("math", "pg", rate, seed, accuracy)
        for rate, accuracies in by_rate.items()
        for seed, accuracy in enumerate(accuracies)
    ]
    write_record(tmp_path, rows)
    (table,) = build_recorded_tables(data, 5)
    (row,) = table.rows
    assert [cell.mark for cell in row.cells[0]] == ["", "best", ""]
    assert [cell.tied for cell in row.cells[0]] == [True, False, False]
    notes = " ".join(table.notes)
    assert "so that the two rates tie" in notes and "weights" not in notes
