"""Tables and figures of studies: variants against their reference, and the time to an accuracy."""

from pathlib import Path

import pandas as pd
import pytest

from rapid.artifacts.evaluations import CurvePoint
from rapid.config.params import load
from rapid.config.specs import add_base_runs, list_study_runs
from reports import plots
from reports.__main__ import main
from reports.plots import style
from reports.render import latex
from reports.report_data import BenchmarkRuns, ReportData
from reports.tables import studies
from tests.reports.conftest import MADE_PROBLEMS, make_run

COMPARED = {
    "eta": ["rapid-H2", "rapid-H2,eta=1", "rapid-H2,eta=4,clip=both", "rapid-H2,clip=nowhere"],
    "time": ["pg,epochs=2,snapshots=2", "rapid-H2,epochs=2,snapshots=2"],
}


PG = "evaluations/math/tiny_qwen/pg,epochs=2,snapshots=2"


@pytest.fixture
def params(values):
    compared = {
        name: {"benchmark": "math", "algorithms": names} for name, names in COMPARED.items()
    }
    values["studies"] = {"seeds": [0, 1], "compared": compared}
    return load(values)


@pytest.fixture
def complete(params, runs):
    """Files of all studied runs, which solve 4 of 10 problems before training and 6 or 7 after."""
    points = [CurvePoint(step=n, seconds=10.0 * n, pass_at={1: 0.4 + 0.05 * n}) for n in (1, 2)]
    for run in add_base_runs(params, list_study_runs(params)):
        solved_more = 0 if run.algorithm == "base" else 2 + run.seed
        runs.write_scores(run, [8] * (4 + solved_more) + [0] * (6 - solved_more))
        if run.algorithm != "base":
            runs.write_summary(run, seconds=40.0, staleness=0.1, clip_fraction=0.05)
        if "snapshots" in run.algorithm:
            runs.write_curve(run, *points)
    return runs


def read_measured(params, runs):
    return ReportData.read(params, runs.root, list_study_runs(params))


def build_tables(params, runs):
    return studies.build_tables(read_measured(params, runs))


def test_row_labels_name_what_differs(params, complete):
    eta, time, *_ = build_tables(params, complete)
    assert [row.label for row in eta.rows] == [
        "RAPID (H=2)", "eta = 1", "eta = 4, clip = both", "clip = nowhere",
    ]  # fmt: skip
    assert [row.label for row in time.rows] == ["PG", "RAPID (H=2)"]
    assert "All variants have epochs = 2 and snapshots = 2." in time.notes
    assert not any("All variants" in note for note in eta.notes)
    assert [table.number for table in build_tables(params, complete)] == [1, 2, 3, 4]
    weights = {row.label: [cell.text for cell in row.cells[0][3:5]] for row in time.rows}
    assert weights == {"PG": ["N/A", "N/A"], "RAPID (H=2)": ["0.10", "5.0%"]}


def test_label_names_the_algorithm_where_it_differs():
    names = ["pg,epochs=2", "rapid-H2,epochs=4", "pg,epochs=8"]
    benchmark_runs = BenchmarkRuns("math", "any", pd.DataFrame(), names, MADE_PROBLEMS)
    study = studies.StudyRuns("own", benchmark_runs, "base", pd.DataFrame(), "pass@1", Path())
    labels = ["PG, epochs = 2", "RAPID (H=2), epochs = 4", "epochs = 8"]
    assert list(map(study.label_variant, names)) == labels


@pytest.mark.parametrize(
    ("start", "description"), [("base", "the model before training"), ("sft", "the model of SFT")]
)
def test_start_of_the_runs_is_named(params, runs, start, description):
    training = params.training.model_copy(update={"start": start})
    data = read_measured(params.model_copy(update={"training": training}), runs)
    time = studies.build_tables(data)[2]
    assert any(f"problems was measured for {description}, for" in note for note in time.notes)
    assert (
        f"The dashed line is {description}, the"
        in plots.build_figures("studies", data)["eta"].caption
    )


def test_differences_are_from_the_first_row(params, complete):
    """With eta = 1 one more problem is solved, in one of two seeds."""
    complete.write_scores(make_run("rapid-H2,eta=1"), [8] * 7 + [0] * 3)
    eta, *_ = build_tables(params, complete)
    position = eta.groups[0].columns.index("Difference")
    assert [row.cells[0][position].text for row in eta.rows] == ["N/A", "+5.0", "0.0", "0.0"]
    eta_1 = eta.rows[1].cells[0][position]
    assert [source.label for source in eta_1.sources] == [
        f"RAPID (H=2){change}, seed {seed}" for change in (", eta = 1", "") for seed in (0, 1)
    ]


def test_time_to_an_accuracy_equals_values_by_hand(params, complete):
    """The curves are lines through (0, 0.4), (10, 0.45), (20, 0.5), and (40, 0.6) or (40, 0.7)."""
    reach = build_tables(params, complete)[2]
    assert reach.groups[0].columns == ["45%", "50%", "55%", "60%", "65%", "70%"]
    pg = reach.rows[0].cells[0]
    assert [cell.text for cell in pg] == ["10.0s", "20.0s", "27.5s", "35.0s", "—", "—"]
    assert pg[2].deviation == "3.5s"  # that of 30 and 25
    assert pg[4].reason == "1 of 2 runs did not reach it"
    complete.delete(complete.root / PG / "seed1/curve.jsonl")
    reach = build_tables(params, complete)[2]
    assert reach.rows[0].cells[0][2].text == "30.0s"  # seed 0 alone


def test_claims_about_variants_are_judged_with_the_studies(params, complete):
    claims = build_tables(params, complete)[-1]
    labels = [row.label for row in claims.rows]
    assert labels == ["Clipping crucial: MATH (made) Pass@1, H=2", "Weights beat KL"]
    clipping, kl = (row.cells[0][1] for row in claims.rows)
    assert clipping.text.startswith("0.0 [")
    assert kl.reason.startswith("needs off-policy runs of GRPO")


@pytest.mark.parametrize("missing", ["nothing", "one seed", "unavailable"])
def test_missing_runs_leave_dashes_and_no_nan(params, complete, missing):
    for run in add_base_runs(params, list_study_runs(params)):
        if missing == "unavailable":
            complete.write_evaluation(run, status="unavailable", note="no Lean")
        elif missing == "nothing" or run.seed == 1:
            complete.delete(complete.root / run.evaluation / "evaluation.json")
    tables = build_tables(params, complete)
    assert latex.render(tables).count(r"\begin{table}") == len(tables)
    cells = [cell for table in tables for cell in table.iterate_cells()]
    texts = {text for cell in cells for text in (cell.text, cell.deviation)}
    assert not any("nan" in text.lower() for text in texts)
    assert "—" in texts or missing == "one seed"
    for figure in plots.build_figures("studies", read_measured(params, complete)).values():
        assert style.render(figure, ["png"])["png"]


def test_command_writes_all_outputs_that_the_workflow_declares(params, complete, tmp_path):
    out = tmp_path / "out"
    arguments = ["--studies", "--config", params.model_dump_json(), "--root", str(complete.root)]
    arguments += ["--output", str(out / "tables.tex"), "--html", str(out / "report.html")]
    assert main([*arguments, "--figures", str(out / "figures")]) == 0
    written = {path.name for path in out.iterdir()}
    assert written == {"figures", "manifest.json", "report.html", "tables.tex", "tables.txt"}
    assert {path.stem for path in (out / "figures").iterdir()} == {"eta", "time", "time-curves"}
    html = (out / "report.html").read_text()
    assert "Each variant changes one thing" in html
    for name in ("eta", "time", "time-reach", "studied-claims"):
        assert f'id="tab-{name}"' in html
