"""Shares of phases, and the times that they predict for other machines, against values by hand."""

import pandas as pd
import pytest

from rapid.artifacts.runs import Runtime
from rapid.config.params import load
from rapid.config.specs import list_arena_runs
from reports.outcomes import list_fields
from reports.report_data import ReportData
from reports.tables import phases
from tests.reports.conftest import add_arena, make_run

# Sampling falls to a quarter, the rest by a tenth.
PLAIN = pd.DataFrame({"runtime": [100.0, 100.0], "runtime.sampling": [80.0, 40.0]})
OURS = pd.DataFrame({"runtime": [33.0, 63.0], "runtime.sampling": [20.0, 10.0]})


@pytest.mark.parametrize(
    ("share", "ratio"), [(None, 0.48), (0.0, 66 / 80 * 1.0), (1.0, 0.25), (0.5, 0.5375)]
)
def test_ratio_is_predicted_from_both_parts(share, ratio):
    assert phases.predict_ratio(OURS, PLAIN, share) == pytest.approx(ratio)


def test_table_has_shares_and_ratios(values, runs):
    params = load(add_arena(values, {"pg": 1e-4, "pg-H4": 1e-4, "grpo": 1e-4}))
    for run in list_arena_runs(params):
        sampling, rest = (60.0, 40.0) if run.algorithm.startswith("pg,") else (15.0, 20.0)
        if not run.algorithm.startswith("grpo"):
            runtime = Runtime(total=sampling + rest, sampling=sampling, backpropagation=rest)
            runs.write_summary(run, runtime=runtime)
        runs.write_scores(run, [8, 0])
    runs.write_scores(make_run("base", 1), [0, 0])
    (outcomes,) = list_fields(ReportData.read(params, runs.root, list_arena_runs(params)))
    table = phases.build_phases_table(outcomes, 1)
    cells = {row.label: [cell.text for cell in row.cells[0]] for row in table.rows}
    assert table.groups[0].columns[-1] == "if sampling takes 90%"
    assert cells["PG"] == ["60.0%", "0.0%", "40.0%", "0.0%", "0.0%", *["1.00"] * 5]
    assert cells["PG (H=4)"][-5:] == ["0.35", "0.44", "0.38", "0.31", "0.28"]
    assert {*cells["GRPO"]} == {"\N{EM DASH}"}
