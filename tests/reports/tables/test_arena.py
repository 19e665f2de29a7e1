"""Tables, verdicts and figures of the arena, from runs with known end points."""

import json

import numpy as np
import pandas as pd
import pytest

from rapid.artifacts.evaluations import CurvePoint
from rapid.artifacts.files import BadFile
from rapid.config.arena import Claim
from rapid.config.params import load
from rapid.config.specs import BASE, list_arena_runs
from reports import contents
from reports.__main__ import main
from reports.outcomes import FieldOutcomes, build_record, list_fields
from reports.plots.arena import build_figures
from reports.report_data import ReportData
from reports.statistics import crossed, times
from reports.statistics.decisions import compute_detectable_difference, compute_detectable_margin
from reports.statistics.estimates import Estimate
from reports.tables import arena, standings
from reports.tables.claims import FAILS, HOLDS, OPEN, UNTESTED, Headline, decide_claims
from tests.conftest import ROOT
from tests.reports.conftest import add_arena, make_run
from tests.reports.html_rules import check_elements
from tests.reports.plots.drawn import draw
from tests.reports.statistics.rates import four_standard_errors

SEEDS = range(1, 9)
CLAIMS = [
    ("rapid-H4", "pg", "seconds", "better"),
    ("pg", "rapid-H4", "seconds", "better"),
    ("rapid-H4", "pg", "accuracy", "same"),
    ("grpo", "pg", "accuracy", "better"),
    ("pg-H4", "pg", "accuracy", "better"),
    ("pg-H4", "pg", "seconds", "better"),
    ("dapo", "pg", "accuracy_in_time", "better"),
]
# Seconds until the accuracy, problems (of 100) solved more than by PG, completions over PG's.
KNOWN_RESULTS = {
    "pg": (20, 0, 1), "pg-H4": (20, 0, 1), "grpo": (25, -20, 1), "dapo": (10, 10, 2),
    "rapid-H4": (10, 0, 1),
}  # fmt: skip
RATES = dict.fromkeys(KNOWN_RESULTS, 1e-4)
SEED_NOISE = [-1, 0, 1, -1, 2, -2, 1, 0, -1]  # by seed, the same for all algorithms


@pytest.fixture
def params(values):
    keys = ("ours", "theirs", "by", "expect")
    claims = [dict(zip(keys, claim, strict=True)) for claim in CLAIMS]
    values = add_arena(values, RATES, seeds=len(SEEDS), claims=claims)
    cells = {"seeds": 2, "problems": 64, "n_step": [4, 16], "H": [1, 4], "rate": 1e-4}
    values["arena"]["maps"] = {"math": cells}
    return load(values)


@pytest.fixture
def complete(params, runs):
    """Files of all runs."""
    for seed in SEEDS:
        runs.write_scores(make_run(BASE, seed), [0] * 100)
    for run in list_arena_runs(params):
        write_known_result(runs, run)
    return runs


def write_known_result(runs, run):
    """Write the files of a run; a snapshot solves half of the problems after the known seconds."""
    algorithm = run.algorithm.split(",")[0]
    seconds, extra_solved, completions_factor = KNOWN_RESULTS.get(algorithm, (10, 0, 1))
    noise = (run.seed + (algorithm == "rapid-H4")) % 2  # of this algorithm
    noise = 2 * SEED_NOISE[-run.seed] if algorithm == "pg-H4" else noise
    solved = 70 + extra_solved + SEED_NOISE[run.seed] + noise
    spread = SEED_NOISE[run.seed] / 10 if algorithm == "pg-H4" else run.seed / 100
    half_time = seconds * (1 + spread)
    runs.write_scores(run, [8] * solved + [0] * (100 - solved))
    weights = {"clip_fraction": 0.05, "staleness": 0.02} if algorithm == "rapid-H4" else {}
    counts = {"completions": 64 * completions_factor, "optimizer_steps": 16}
    runs.write_summary(run, seconds=2 * half_time, **counts, **weights)
    runs.write_curve(run, CurvePoint(step=8, seconds=half_time, pass_at={1: 0.5}))


def read_measured(params, runs) -> ReportData:
    return ReportData.read(params, runs.root, list_arena_runs(params))


def test_verdicts_follow_from_known_differences(params, complete):
    fields = list_fields(read_measured(params, complete))
    judged_claims = arena.judge_claims(fields)
    verdicts = [judged.verdict for judged in judged_claims]
    assert verdicts == [HOLDS, FAILS, HOLDS, FAILS, OPEN, OPEN, HOLDS]
    assert arena.summarize(fields, judged_claims) == (
        "On MATH (made) RAPID (H=4) is number 1 of 5 by training time until 50% accuracy: 0.50 of "
        "PG's. Of 7 preregistered claims 3 hold, 2 fail and 2 are open."
    )
    assert arena.build_headlines(judged_claims) == [
        Headline("Sooner on MATH (made)", [HOLDS, FAILS, OPEN]),
        Headline("As good on MATH (made)", [HOLDS]),
        Headline("Better on MATH (made)", [FAILS, OPEN]),
        Headline("Better in equal time on MATH (made)", [HOLDS]),
    ]
    without_runs = ReportData.read(params, complete.root / "none", list_arena_runs(params))
    assert "number 1" not in arena.summarize(list_fields(without_runs), [])


def test_field_is_ordered_by_time_and_then_by_accuracy(params, complete):
    """RAPID and DAPO are equally fast; at equal completions RAPID is more accurate."""
    (outcomes,) = list_fields(read_measured(params, complete))
    assert standings.rank_algorithms(outcomes) == ["rapid-H4", "dapo", "pg-H4", "pg", "grpo"]
    place_text = "On MATH (made) PG is number 4 of 5 by training time until 50% accuracy."
    assert standings.describe_rank(outcomes, "pg") == place_text
    table = standings.build_standings_table(outcomes, 1)
    assert table.notes[0].startswith("Runs: 8 of each. ")
    rows = {row.label: [cell.text for cell in row.cells[0]] for row in table.rows}
    assert rows["RAPID (H=4)"][-2:] == ["5.0%", "0.02"]
    assert rows["PG"][1:2] + rows["PG"][3:] == ["N/A"] * 7
    assert {len(cells) for cells in rows.values()} == {len(table.groups[0].columns)}


def test_detectable_value_of_an_equality_claim_is_a_margin(params, complete):
    """The claims have eight tests, since a claim of equality has two."""
    verdicts = arena.judge_claims(list_fields(read_measured(params, complete)))
    (equality,) = (verdict for verdict in verdicts if verdict.claim.expect == "same")
    margin, difference = (
        minimum(equality.estimate, 0.05 / 8)
        for minimum in (compute_detectable_margin, compute_detectable_difference)
    )
    assert equality.detectable == pytest.approx(margin) != pytest.approx(difference)


@pytest.mark.parametrize(("margin", "note"), [(0.001, ", underpowered"), (0.5, "")])
def test_equality_claim_is_underpowered_if_its_margin_is_below_the_detectable_one(
    params, complete, margin, note
):
    arena_params = params.arena.model_copy(update={"margin": margin})
    params = params.model_copy(update={"arena": arena_params})
    verdicts = arena.judge_claims(list_fields(read_measured(params, complete)))
    notes = {v.decision.removeprefix(v.verdict) for v in verdicts if v.claim.expect == "same"}
    assert notes == {note}
    others = [v for v in verdicts if v.claim.expect != "same"]
    assert [v.decision for v in others] == [v.verdict for v in others]


def test_equal_runs_leave_a_claim_untested(params, complete):
    """RAPID solves what PG with the same H solves, as if its weights had no effect."""
    for run in list_arena_runs(params):
        if run.algorithm.startswith(("rapid-H4,problems=16", "pg-H4,")):
            complete.write_scores(run, [8] * (70 + run.seed) + [0] * (30 - run.seed))
    params.arena.fields["math"].claims[:] = [Claim(ours="rapid-H4", theirs="pg-H4", by="accuracy")]
    data = read_measured(params, complete)
    (verdict,) = arena.judge_claims(list_fields(data))
    assert (verdict.verdict, verdict.detectable) == (UNTESTED, None)
    assert "all scores are equal" in verdict.estimate.reason


@pytest.mark.parametrize(
    ("by", "expect", "value", "tests"),
    [
        ("accuracy", "better", 0.03, [(0.001, HOLDS)]),
        ("accuracy", "better", -0.03, [(0.001, FAILS)]),
        ("seconds", "better", 0.97, [(0.001, HOLDS)]),
        ("seconds", "better", 1.03, [(0.001, FAILS)]),
        # The first test is of equality, with half of the larger p at a margin.
        ("accuracy", "same", 0.01, [(0.2, HOLDS), (0.001, FAILS)]),
        ("accuracy_in_time", "same", -0.01, [(0.2, HOLDS), (0.001, FAILS)]),
    ],
)
def test_equality_claim_has_two_tests_and_others_have_one(by, expect, value, tests):
    claim = Claim(ours="grpo", theirs="pg", by=by, expect=expect)
    estimate = Estimate(value, p_at=lambda limit: 0.001 if limit in (0, 1) else 0.4)
    assert arena.list_tests(claim, estimate, 0.02) == tests
    assert arena.list_tests(claim, Estimate(value), 0.02) == []


def test_each_benchmark_has_a_table_of_claims_with_notes_under_the_last(params):
    data = ReportData(params, pd.DataFrame(), ROOT)
    claim = Claim(ours="rapid-H4", theirs="rapid-H4,eta=4", by="accuracy")
    verdicts = [
        arena.JudgedClaim(FieldOutcomes(name, None, data), claim, Estimate(0.03), [()] * bool(p), p, word, smallest)
        for name, p, word, smallest in (
            ("math", 0.01, HOLDS, 0.02), ("mbpp_plus", None, UNTESTED, None),
            ("math", 0.5, OPEN, 0.1),
        )
    ]  # fmt: skip
    first, last = arena.build_claims_tables(data, verdicts)
    assert (first.number, first.notes, last.number) == (1, [], 2)
    assert any("all 2 tests of all claims" in note for note in last.notes)
    cells = [[cell.text for cell in row.cells[0]] for row in [*first.rows, *last.rows]]
    assert cells == [
        ["+3.0", "N/A", "0.010", "2.0", HOLDS],
        ["+3.0", "N/A", "0.500", "10.0", OPEN],
        ["+3.0", "N/A", "—", "—", UNTESTED],
    ]
    assert first.rows[0].label == "RAPID (H=4) better than with eta = 4"


@pytest.mark.parametrize(
    ("by", "expect", "explained"),
    [
        ("accuracy", "better", set()),
        ("accuracy", "same", {"difference of 2 points", "has two tests", "underpowered"}),
        ("accuracy_in_time", "better", {"equal time"}),
    ],
)
def test_notes_explain_only_the_kinds_of_claims_that_are_in_the_table(
    by, expect, explained, params
):
    outcomes = FieldOutcomes("math", None, ReportData(params, pd.DataFrame(), ROOT))
    claim = Claim(ours="grpo", theirs="pg", by=by, expect=expect)
    [table] = arena.build_claims_tables(
        outcomes.data, [arena.JudgedClaim(outcomes, claim, Estimate(0.03))]
    )
    notes = " ".join(table.notes)
    phrases = {"difference of 2 points", "has two tests", "underpowered", "equal time", "Wilcoxon"}
    assert {phrase for phrase in phrases if phrase in notes} == explained
    assert "Holm" in notes and "Detectable" in notes


@pytest.mark.parametrize("arenas", [200, pytest.param(4000, marks=pytest.mark.slow)])
def test_at_most_one_in_twenty_arenas_has_a_wrong_verdict(arenas):
    """Simulated arenas have claims of each kind; a wrong verdict on any of them counts."""
    chance, wrong_arenas = np.random.default_rng(6), 0
    faster, better = (Claim(ours="grpo", theirs="pg", by=by) for by in ("seconds", "accuracy"))
    equality = Claim(ours="grpo", theirs="pg", by="accuracy", expect="same")
    # A claim, its true value, and the verdicts that are wrong.
    cases = [(faster, 0.0, (HOLDS, FAILS))] * 4 + [(better, 0.0, (HOLDS, FAILS))] * 3
    cases += [(better, 0.2, (FAILS,)), (equality, 0.0, (FAILS,)), (equality, 0.02, (HOLDS,))]
    for _ in range(arenas):
        claims = []
        for claim, truth, _ in cases:
            differences = truth + chance.normal(0, 0.02, 20)
            estimate = crossed.estimate_mean(differences[:, None], (-1, 1))
            if claim.by == "seconds":
                estimate = times.time_ratio(np.exp(differences), np.ones(20))
            tests = arena.list_tests(claim, estimate, 0.02)
            claims.append(arena.JudgedClaim(None, claim, estimate, tests))
        verdicts = (claim.verdict for claim in decide_claims(claims))
        wrong_arenas += any(
            verdict in case[2] for verdict, case in zip(verdicts, cases, strict=True)
        )
    assert wrong_arenas / arenas < 0.05 + four_standard_errors(arenas)


def test_algorithms_that_never_reach_the_accuracy_are_last(params, complete):
    """Only algorithms without runs come after them; mean accuracy decides between two of them."""
    for run in list_arena_runs(params):
        solved = {"grpo": 40, "pg-H4": 45}.get(run.algorithm.split(",")[0])
        if solved:
            complete.write_scores(run, [8] * solved + [0] * (100 - solved))
            complete.write_curve(run, CurvePoint(step=8, seconds=1.0, pass_at={1: 0.4}))
        if run.algorithm.startswith("dapo,") or (solved == 45 and run.seed == 8):  # no files
            for name in ("curve.jsonl", "evaluation.json"):
                complete.delete(complete.root / run.evaluation / name)
            complete.delete(complete.root / run.folder / "summary.json")
    (outcomes,) = list_fields(read_measured(params, complete))
    assert standings.rank_algorithms(outcomes) == ["rapid-H4", "pg", "pg-H4", "grpo", "dapo"]
    table = standings.build_standings_table(outcomes, 1)
    *_, grpo, dapo = (row.cells[0] for row in table.rows)
    assert grpo[0].text == "never"
    reason = "fewer than two runs have a curve"
    assert [(cell.text, cell.reason) for cell in dapo] == [("—", reason)] * 9
    assert "Runs: 8 of each, but 7 of PG (H=4) and 0 of DAPO." in table.notes[0]
    place_text = "On MATH (made) DAPO is number 5 of 5 by training time until 50% accuracy."
    assert standings.describe_rank(outcomes, "dapo") == place_text


@pytest.mark.parametrize(("name", "runs_left"), [("pg", 2), ("dapo", 2), ("pg", 1), ("dapo", 1)])
def test_comparison_needs_two_runs_of_each_algorithm(params, complete, name, runs_left):
    for run in list_arena_runs(params):
        if run.algorithm.startswith(f"{name},") and run.seed > runs_left:
            complete.delete(complete.root / run.evaluation / "curve.jsonl")
    (outcomes,) = list_fields(read_measured(params, complete))
    (cells,) = (
        r.cells[0] for r in standings.build_standings_table(outcomes, 1).rows if r.label == "DAPO"
    )
    assert ({cell.text for cell in cells} == {"—"}) == (runs_left == 1)


def test_algorithm_that_never_reaches_the_accuracy_is_drawn_at_the_edge(params, complete):
    for run in list_arena_runs(params):
        if run.algorithm.startswith("grpo,"):
            complete.write_scores(run, [8] * 40 + [0] * 60)
            complete.write_curve(run, CurvePoint(step=8, seconds=1.0, pass_at={1: 0.4}))
    data = read_measured(params, complete)
    (outcomes,) = list_fields(data)
    time_axes, _ = draw(build_figures(data)["arena-math"]).axes
    grpo_row = [standings.rank_algorithms(outcomes).index("grpo")]
    markers = [line.get_marker() for line in time_axes.lines if [*line.get_ydata()] == grpo_row]
    assert markers == [">"]


@pytest.mark.parametrize("missing", ["nothing", "evaluations"])
def test_command_writes_a_report_of_the_existing_files(params, complete, tmp_path, missing):
    for run in list_arena_runs(params):
        if missing == "evaluations" and run.seed > 1:
            complete.delete(complete.root / run.evaluation / "evaluation.json")
    out = tmp_path / "out"
    arguments = ["--arena", "--config", params.model_dump_json(), "--root", str(complete.root)]
    arguments += ["--output", str(out / "tables.tex"), "--html", str(out / "report.html")]
    assert main([*arguments, "--figures", str(out / "figures")]) == 0
    html, text = ((out / name).read_text() for name in ("report.html", "tables.txt"))
    check_elements(html)
    assert "Effect of H at each N_step" in html and "nan" not in text.lower()
    assert {path.stem for path in (out / "figures").iterdir()} == {
        "arena-math", "arena-math-curves", "arena-map",
    }  # fmt: skip
    if missing != "nothing":
        verdicts = arena.judge_claims(list_fields(read_measured(params, complete)))
        assert {judged.verdict for judged in verdicts} == {UNTESTED}


def test_report_of_maps_alone_has_the_files_that_the_workflow_expects(params, runs, tmp_path):
    values = params.model_dump(mode="json")
    del values["arena"]["fields"]
    for cells in values["arena"]["maps"].values():
        cells["rate"] = 1e-4
    arguments = ["--arena", "--config", json.dumps(values), "--root", str(runs.root)]
    assert main([*arguments, "--output", str(tmp_path / "out" / "tables.tex")]) == 0
    outputs = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"tables.tex", "tables.txt", "results.csv"} <= outputs
    inputs = json.loads((tmp_path / "out" / "manifest.json").read_text())["inputs"]
    names = {"summary.json", "evaluation.json", "curve.jsonl"}
    assert {name.rpartition("/")[2] for name in inputs} == names


def compare_with_record(params, complete, rows, name="rapid-H4"):
    """Return parameters that run an algorithm and PG, and compare them with recorded rows."""
    rows.to_csv(complete.root / "record.csv", index=False)
    values = params.model_dump(mode="json")
    values["arena"] |= {"only": ["pg", name], "record": "record.csv"}
    values["arena"]["fields"]["math"]["rates"] |= {name: 1e-4}
    return load(values)


def test_new_runs_are_ranked_among_recorded_ones(params, complete):
    """The record is from a machine of half the speed; here RAPID and PG are run again."""
    rows = build_record(read_measured(params, complete))
    assert len(rows) == len(RATES) * len(SEEDS)
    rows[["seconds", "runtime"]] *= 2
    rows.loc[rows.algorithm == "rapid-H4", "seconds"] *= 50  # somebody else's slower implementation
    slow_rows = rows[rows.algorithm == "pg"].assign(seed=lambda rows: rows.seed + 100)
    slow_rows["runtime"] *= 9  # seeds without a run here do not count
    all_outcomes = list_fields(read_measured(params, complete))[0]
    new_params = compare_with_record(params, complete, pd.concat([rows, slow_rows]))
    assert {run.algorithm.split(",")[0] for run in list_arena_runs(new_params)} == {
        "pg",
        "rapid-H4",
    }
    outcomes = list_fields(read_measured(new_params, complete))[0]
    for name in RATES:
        for by in ("seconds", "accuracy", "accuracy_in_time"):
            expected = all_outcomes.compare(name, "pg", by).value
            assert outcomes.compare(name, "pg", by).value == pytest.approx(expected, abs=1e-9)
    content = contents.build_arena(read_measured(new_params, complete))
    assert content.lead == [
        "On MATH (made) RAPID (H=4) is number 1 of 5 by training time until 50% accuracy: 0.50 of "
        "PG's. Its learning rate was set by the user, not tuned."
    ]
    assert content.headlines == []

    new_params = compare_with_record(params, complete, rows[rows.algorithm != "pg"])
    with pytest.raises(BadFile, match="no runs of pg on math"):
        list_fields(read_measured(new_params, complete))[0].compare("rapid-H4", "pg", "seconds")


def test_an_algorithm_without_recorded_runs_is_ranked_too(params, complete):
    """`make arena ALGORITHM=oapl-H8` adds a learning rate to the field; no run is recorded."""
    rows = build_record(read_measured(params, complete))
    new_params = compare_with_record(params, complete, rows, "oapl-H8")
    for run in list_arena_runs(new_params):
        if run.algorithm.startswith("oapl-H8,"):
            write_known_result(complete, run)
    (outcomes,) = list_fields(read_measured(new_params, complete))
    assert outcomes.compare("oapl-H8", "pg", "seconds").value == pytest.approx(0.5)
    assert standings.rank_algorithms(outcomes).index("oapl-H8") < len(RATES) - 1


@pytest.mark.parametrize("column", ["run", "reach"])
def test_record_of_other_rates_or_levels_is_refused(params, complete, column):
    """Tuning writes new rates and levels; recorded runs with the earlier ones are refused."""
    rows = build_record(read_measured(params, complete))
    last_row = rows.index[rows.algorithm == "dapo"][-1]
    rows.loc[last_row, column] = {"run": "dapo,learning_rate=0.5", "reach": 0.75}[column]
    new_params = compare_with_record(params, complete, rows)
    with pytest.raises(BadFile, match=r"dapo on math are from .* run the whole arena again"):
        list_fields(read_measured(new_params, complete))[0].compare("rapid-H4", "pg", "seconds")


def test_record_is_scaled_by_seeds_that_have_a_run_here(params, complete):
    rows = build_record(read_measured(params, complete))
    rows[["seconds", "runtime"]] *= 2
    expected = list_fields(read_measured(params, complete))[0].outcomes["dapo"].seconds
    pg_runs = [run for run in list_arena_runs(params) if run.algorithm.startswith("pg,")]
    [run_of_seed_8] = [run for run in pg_runs if run.seed == 8]
    complete.delete(complete.root / run_of_seed_8.folder / "summary.json")
    new_params = compare_with_record(params, complete, rows)
    scaled = list_fields(read_measured(new_params, complete))[0].outcomes["dapo"].seconds
    assert dict(scaled) == pytest.approx(dict(expected))
