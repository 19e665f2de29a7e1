"""Hypotheses of studies: their estimates, tests, verdicts, and the text of the table."""

import pytest

from rapid.config.params import load
from rapid.config.specs import list_study_runs
from reports.report_data import ReportData
from reports.statistics.decisions import adjust_by_holm
from reports.tables import hypotheses, studies
from tests.reports.conftest import make_run

SEEDS = list(range(8))
NAMES = ["rapid-H2", "rapid-H2,baseline_scale=0", "rapid-H2,baseline_scale=0.5"]
FULL, NONE, HALF = NAMES
GAP = {NONE: 1, FULL: -1}
HYPOTHESES = {
    "gap": {"claim": "Higher without", "studies": ["scale"], "contrast": GAP, "above": 0.05},
    "small": {"claim": "Small gap", "studies": ["scale"], "contrast": GAP, "below": 0.05},
    "half": {
        "claim": "Half closes it",
        "studies": ["scale"],
        "contrast": {HALF: 1, NONE: -0.5, FULL: -0.5},
        "above": 0,
    },
    "entropy": {
        "claim": "Entropy is lower",
        "studies": ["scale"],
        "metric": "entropy",
        "contrast": GAP,
        "below": 0,
    },
}


@pytest.fixture
def params(values):
    study = {"benchmark": "math", "algorithms": NAMES, "sweep": "baseline_scale"}
    values["evaluation"]["diversity"] = True
    values["studies"] = {
        "seeds": SEEDS, "compared": {"scale": study}, "hypotheses": HYPOTHESES
    }  # fmt: skip
    return load(values)


@pytest.fixture
def complete(params, runs):
    """Runs that solve 4 of 10 problems with the baseline and 8 without; some seeds one more.

    With half of the baseline they solve 6, the mean of both.
    """
    for run in list_study_runs(params):
        solved = {FULL: 4, HALF: 6, NONE: 8}[run.algorithm] + (run.seed % 3 == 0)
        noise = 0.01 * (run.seed * (3 if run.algorithm == FULL else 1) % 4)
        entropy = {FULL: 0.5, HALF: 0.4, NONE: 0.3}[run.algorithm] + noise
        runs.write_scores(run, [8] * solved + [0] * (10 - solved), entropy=entropy)
        runs.write_summary(run)
    return runs


def judge_all(params, runs):
    data = ReportData.read(params, runs.root, list_study_runs(params))
    return hypotheses.judge_hypotheses(data, studies.list_studies(data))


def test_verdicts_follow_from_limits_and_adjusted_p(params, complete):
    gap, small, half, entropy = judge_all(params, complete)
    assert gap.estimate.value == small.estimate.value == pytest.approx(0.4)
    assert half.estimate.value == pytest.approx(0)
    assert entropy.estimate.value < -0.15
    assert [trial.verdict for trial in (half, entropy)] == ["open", "holds"]
    trials = (gap, small, half, entropy)
    raw = [p for trial in trials for p, _ in trial.tests]
    assert [trial.p for trial in trials] == pytest.approx(adjust_by_holm(raw))
    # The same estimate and limit, claimed on opposite sides.
    assert gap.tests[0][0] == small.tests[0][0]
    assert (gap.tests[0][1], small.tests[0][1]) == ("holds", "fails")


def test_generated_problems_are_clustered_by_skeleton(params, complete, monkeypatch):
    """Five skeletons of two problems each."""
    skeletons = {f"p{n}": f"skeleton {n // 2}" for n in range(10)}
    monkeypatch.setattr(hypotheses, "is_generated", lambda data, benchmark: True)
    monkeypatch.setattr(hypotheses, "regenerate_skeletons", lambda data, benchmark: skeletons)
    gap, *_, entropy = judge_all(params, complete)
    assert gap.estimate.sample == "n = 8 seeds and 5 problems"
    assert gap.estimate.value == pytest.approx(0.4)
    assert entropy.estimate.sample == "n = 8 runs"


def test_missing_runs_leave_a_test_untested(params, complete):
    for seed in SEEDS:
        run = make_run(HALF, seed)
        complete.delete(complete.root / run.evaluation / "evaluation.json")
    gap, _, half, _ = judge_all(params, complete)
    assert (half.verdict, half.estimate, half.p) == ("not tested here", None, None)
    assert gap.p is not None
    cell = half.build_estimate_cell()
    assert (cell.text, cell.reason) == ("\u2014", "no seed has all runs of the contrast")


def test_missing_run_of_a_contrast_is_shown_as_a_dash(params, complete):
    complete.delete(complete.root / make_run(HALF, SEEDS[0]).evaluation / "evaluation.json")
    half = judge_all(params, complete)[2]
    sources = half.build_estimate_cell().sources
    assert [source.text == "\u2014" for source in sources].index(True) == 0
    assert all(source.text != "nan" for source in sources)


def test_table_has_a_row_for_each_test(params, complete):
    data = ReportData.read(params, complete.root, list_study_runs(params))
    table = studies.build_tables(data)[-2]
    assert table.label == "tab:hypotheses"
    assert [row.label for row in table.rows][:2] == ["gap: scale", "small: scale"]
    assert table.named_notes[0] == ("gap", "Higher without.")
    predicted = [row.cells[0][0] for row in table.rows]
    assert [cell.text for cell in predicted] == ["> +5.0", "< +5.0", "> 0.0", "< 0"]
    assert predicted[3].extra_lines == ("entropy",)
    assert table.rows[0].cells[0][1].text == "+40.0"
    sources = table.rows[2].cells[0][1].sources
    assert [source.label for source in sources][8].startswith("-0.5 x baseline_scale = 0, seed")
    assert len(sources) == 3 * len(SEEDS)
    assert any("adjusted for the 4 tests" in note for note in table.notes)
