"""The arena's report from runs whose end points are known."""

import json

import numpy as np
import pandas as pd
import pytest

from rapid.artifacts.evaluations import CurvePoint
from rapid.artifacts.files import BadFile
from rapid.config.arena import Claim
from rapid.config.params import load
from rapid.config.specs import BASE, arena_runs
from reports import contents
from reports.__main__ import main
from reports.measured import Measured
from reports.outcomes import FieldOutcomes, record
from reports.plots.arena import figures
from reports.statistics import crossed, times
from reports.statistics.decisions import detectable, provable
from reports.statistics.estimates import Estimate
from reports.tables import arena
from reports.tables.claims import FAILS, HOLDS, OPEN, UNTESTED, Headline, decide
from tests.conftest import ROOT
from tests.reports.conftest import run_of
from tests.reports.html_rules import check_elements
from tests.reports.statistics.rates import noise

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
# Seconds until the accuracy, more of 100 problems solved than by PG, and completions over PG's.
KNOWN = {
    "pg": (20, 0, 1), "pg-H4": (20, 0, 1), "grpo": (25, -20, 1), "dapo": (10, 10, 2),
    "rapid-H4": (10, 0, 1),
}  # fmt: skip
RATES = dict.fromkeys(KNOWN, 1e-4)


@pytest.fixture
def params(values):
    values["benchmarks"]["math"] = values["benchmarks"]["math"] | {"train": 64}
    field = {"seeds": len(SEEDS), "problems": 16, "snapshots": 1, "reach": 0.5, "rates": RATES}
    keys = ("ours", "theirs", "by", "expect")
    field["claims"] = [dict(zip(keys, claim, strict=True)) for claim in CLAIMS]
    cells = {"seeds": 2, "problems": 64, "n_step": [4, 16], "H": [1, 4], "rate": 1e-4}
    return load(values | {"arena": {"fields": {"math": field}, "maps": {"math": cells}}})


@pytest.fixture
def complete(params, runs):
    """A model on the way solves half of the problems, after the seconds that are known."""
    chance = [-1, 0, 1, -1, 2, -2, 1, 0, -1]  # by seed, of all algorithms alike
    for seed in SEEDS:
        runs.scored(run_of(BASE, seed), [0] * 100)
    for run in arena_runs(params):
        plain = run.algorithm.split(",")[0]
        seconds, more, over = KNOWN.get(plain, (10, 0, 1))
        own = (run.seed + (plain == "rapid-H4")) % 2  # and of its own
        own = 2 * chance[-run.seed] if plain == "pg-H4" else own
        solved = 70 + more + chance[run.seed] + own
        moved = seconds * (1 + (chance[run.seed] / 10 if plain == "pg-H4" else run.seed / 100))
        runs.scored(run, [8] * solved + [0] * (100 - solved))
        weights = {"clip_fraction": 0.05, "staleness": 0.02} if plain == "rapid-H4" else {}
        given = {"completions": 64 * over, "optimizer_steps": 16, **weights}
        runs.summary(run, seconds=2 * moved, **given)
        runs.curve(run, CurvePoint(step=8, seconds=moved, pass_at={1: 0.5}))
    return runs


def read(params, runs) -> Measured:
    return Measured.read(params, runs.root, arena_runs(params))


def test_verdicts_on_known_differences(params, complete):
    measured = read(params, complete)
    verdicts = arena.judge(measured)
    found = [one.verdict for one in verdicts]
    assert found == [HOLDS, FAILS, HOLDS, FAILS, OPEN, OPEN, HOLDS]
    assert arena.summarize(measured, verdicts) == (
        "On MATH (made) RAPID (H=4) is number 1 of 5 by seconds to 50%: 0.50 of PG's. "
        "Of 7 claims written down beforehand 3 hold, 2 fail and 2 are open."
    )
    assert arena.headlines(verdicts) == [
        Headline("Sooner on MATH (made)", [HOLDS, FAILS, OPEN]),
        Headline("As good on MATH (made)", [HOLDS]),
        Headline("Better on MATH (made)", [FAILS, OPEN]),
        Headline("Better in equal time on MATH (made)", [HOLDS]),
    ]
    nobody = Measured.read(params, complete.root / "none", arena_runs(params))
    assert "number 1" not in arena.summarize(nobody, [])


def test_the_field_is_ordered_by_time_and_then_by_accuracy(params, complete):
    """RAPID and DAPO are as fast; of equal completions RAPID is the more accurate."""
    (outcomes,) = arena.fields(read(params, complete))
    assert arena.order(outcomes) == ["rapid-H4", "dapo", "pg-H4", "pg", "grpo"]
    place = "On MATH (made) PG is number 4 of 5 by seconds to 50%."
    assert arena.describe_place(outcomes, "pg") == place
    table = arena.standings(outcomes, 1)
    assert table.notes[0].startswith("Runs: 8 of each. ")
    rows = {row.label: [cell.text for cell in row.cells[0]] for row in table.rows}
    assert rows["RAPID (H=4)"][-2:] == ["5.0%", "0.02"]
    assert rows["PG"][1:2] + rows["PG"][3:] == ["N/A"] * 7
    assert {len(cells) for cells in rows.values()} == {len(table.groups[0].columns)}


def test_what_would_be_seen_of_equality_is_a_margin(params, complete):
    """Eight tests: a claim of the same has two."""
    verdicts = arena.judge(read(params, complete))
    (same,) = (one for one in verdicts if one.claim.expect == "same")
    margin, difference = (of(same.estimate, 0.05 / 8) for of in (provable, detectable))
    assert same.detectable == pytest.approx(margin) != pytest.approx(difference)


def test_runs_that_are_alike_test_nothing(params, complete):
    """RAPID solves what PG with the same H solves: its weights never acted."""
    for run in arena_runs(params):
        if run.algorithm.startswith(("rapid-H4,problems=16", "pg-H4,")):
            complete.scored(run, [8] * (70 + run.seed) + [0] * (30 - run.seed))
    params.arena.fields["math"].claims[:] = [Claim(ours="rapid-H4", theirs="pg-H4", by="accuracy")]
    measured = read(params, complete)
    (verdict,) = arena.judge(measured)
    assert (verdict.verdict, verdict.detectable) == (UNTESTED, None)
    assert "the part never acted" in verdict.estimate.reason


@pytest.mark.parametrize(
    ("by", "expect", "value", "tests"),
    [
        ("accuracy", "better", 0.03, [(0.001, HOLDS)]),
        ("accuracy", "better", -0.03, [(0.001, FAILS)]),
        ("seconds", "better", 0.97, [(0.001, HOLDS)]),
        ("seconds", "better", 1.03, [(0.001, FAILS)]),
        # Of equality first, with half of the larger p at a margin.
        ("accuracy", "same", 0.01, [(0.2, HOLDS), (0.001, FAILS)]),
        ("accuracy_in_time", "same", -0.01, [(0.2, HOLDS), (0.001, FAILS)]),
    ],
)
def test_a_claim_of_the_same_has_two_tests_and_others_one(by, expect, value, tests):
    claim = Claim(ours="grpo", theirs="pg", by=by, expect=expect)
    estimate = Estimate(value, p_at=lambda limit: 0.001 if limit in (0, 1) else 0.4)
    assert arena.list_tests(claim, estimate, 0.02) == tests
    assert arena.list_tests(claim, Estimate(value), 0.02) == []


def test_each_benchmark_has_a_table_of_claims_and_the_last_one_the_notes(params):
    measured = Measured(params, pd.DataFrame(), ROOT)
    claim = Claim(ours="rapid-H4", theirs="rapid-H4,eta=4", by="accuracy")
    made = [
        arena.ArenaVerdict(FieldOutcomes(name, None, measured), claim, Estimate(0.03), [()] * bool(p), p, word, seen)
        for name, p, word, seen in (
            ("math", 0.01, HOLDS, 0.02), ("mbpp_plus", None, UNTESTED, None),
            ("math", 0.5, OPEN, 0.1),
        )
    ]  # fmt: skip
    first, last = arena.claims(measured, made)
    assert (first.number, first.notes, last.number) == (1, [], 2)
    assert any("a difference of 2 points" in note for note in last.notes)
    assert any("all 2 tests of all claims" in note for note in last.notes)
    cells = [[cell.text for cell in row.cells[0]] for row in [*first.rows, *last.rows]]
    assert cells == [
        ["+3.0", "0.010", "2.0", HOLDS],
        ["+3.0", "0.500", "10.0", OPEN],
        ["+3.0", "—", "—", UNTESTED],
    ]
    assert first.rows[0].label == "RAPID (H=4) better than with eta = 4"


@pytest.mark.parametrize("arenas", [200, pytest.param(4000, marks=pytest.mark.slow)])
def test_at_most_one_arena_in_twenty_has_a_wrong_verdict(arenas):
    """Simulated ones, with claims of each kind: on any of them."""
    chance, wrong = np.random.default_rng(6), 0
    more = [Claim(ours="grpo", theirs="pg", by=by) for by in ("seconds", "accuracy")]
    same = Claim(ours="grpo", theirs="pg", by="accuracy", expect="same")
    # Each claim with its truth, and verdicts that are wrong.
    cases = [(more[0], 0.0, (HOLDS, FAILS))] * 4 + [(more[1], 0.0, (HOLDS, FAILS))] * 3
    cases += [(more[1], 0.2, (FAILS,)), (same, 0.0, (FAILS,)), (same, 0.02, (HOLDS,))]
    for _ in range(arenas):
        tests = []
        for claim, truth, _ in cases:
            drawn = truth + chance.normal(0, 0.02, 20)
            estimate = crossed.estimate(drawn[:, None], (-1, 1))
            if claim.by == "seconds":
                estimate = times.ratio(np.exp(drawn), np.ones(20))
            tests.append(arena.list_tests(claim, estimate, 0.02))
        words = (word for _, word in decide(tests))
        wrong += any(word in case[2] for word, case in zip(words, cases, strict=True))
    assert wrong / arenas < 0.05 + noise(arenas)


def test_who_never_gets_there_is_last(params, complete):
    """Behind it is only who has no runs. Of two the mean accuracy decides, of 7 runs and of 8."""
    for run in arena_runs(params):
        solved = {"grpo": 40, "pg-H4": 45}.get(run.algorithm.split(",")[0])
        if solved:
            complete.scored(run, [8] * solved + [0] * (100 - solved))
            complete.curve(run, CurvePoint(step=8, seconds=1.0, pass_at={1: 0.4}))
        if run.algorithm.startswith("dapo,") or (solved == 45 and run.seed == 8):  # not there
            for name in ("curve.jsonl", "evaluation.json"):
                complete.drop(complete.root / run.evaluation / name)
            complete.drop(complete.root / run.folder / "summary.json")
    (outcomes,) = arena.fields(read(params, complete))
    assert arena.order(outcomes) == ["rapid-H4", "pg", "pg-H4", "grpo", "dapo"]
    table = arena.standings(outcomes, 1)
    *_, grpo, dapo = (row.cells[0] for row in table.rows)
    assert grpo[0].text == "never"
    none = "fewer than two runs have a curve"
    assert [(cell.text, cell.reason) for cell in dapo] == [("—", none)] * 9
    assert "Runs: 8 of each, but 7 of PG (H=4) and 0 of DAPO." in table.notes[0]
    said = "On MATH (made) DAPO is number 5 of 5 by seconds to 50%."
    assert arena.describe_place(outcomes, "dapo") == said


@pytest.mark.parametrize(("name", "left"), [("pg", 2), ("dapo", 2), ("pg", 1), ("dapo", 1)])
def test_two_runs_of_each_are_compared(params, complete, name, left):
    for run in arena_runs(params):
        if run.algorithm.startswith(f"{name},") and run.seed > left:
            complete.drop(complete.root / run.evaluation / "curve.jsonl")
    (outcomes,) = arena.fields(read(params, complete))
    (cells,) = (r.cells[0] for r in arena.standings(outcomes, 1).rows if r.label == "DAPO")
    assert ({cell.text for cell in cells} == {"—"}) == (left == 1)


def test_who_never_gets_there_is_drawn_at_the_edge(params, complete):
    for run in arena_runs(params):
        if run.algorithm.startswith("grpo,"):
            complete.scored(run, [8] * 40 + [0] * 60)
            complete.curve(run, CurvePoint(step=8, seconds=1.0, pass_at={1: 0.4}))
    measured = read(params, complete)
    (outcomes,) = arena.fields(measured)
    left, _ = figures(measured)["arena-math"].draw().axes
    row = [arena.order(outcomes).index("grpo")]
    assert [one.get_marker() for one in left.lines if [*one.get_ydata()] == row] == [">"]


@pytest.mark.parametrize("gone", ["nothing", "evaluations"])
def test_the_command_writes_a_page_of_what_there_is(params, complete, tmp_path, gone):
    for run in arena_runs(params):
        if gone == "evaluations" and run.seed > 1:
            complete.drop(complete.root / run.evaluation / "evaluation.json")
    out = tmp_path / "out"
    arguments = ["--arena", "--config", params.model_dump_json(), "--root", str(complete.root)]
    arguments += ["--output", str(out / "tables.tex"), "--html", str(out / "report.html")]
    assert main([*arguments, "--figures", str(out / "figures")]) == 0
    html, text = ((out / name).read_text() for name in ("report.html", "tables.txt"))
    check_elements(html)
    assert "Where H pays" in html and "nan" not in text.lower()
    assert {path.stem for path in (out / "figures").iterdir()} == {"arena-math", "arena-map"}
    if gone != "nothing":
        verdicts = arena.judge(read(params, complete))
        assert {one.verdict for one in verdicts} == {UNTESTED}


def test_a_page_of_maps_alone_has_the_files_that_the_workflow_expects(params, runs, tmp_path):
    values = params.model_dump(mode="json")
    del values["arena"]["fields"]
    for one in values["arena"]["maps"].values():
        one["rate"] = 1e-4
    arguments = ["--arena", "--config", json.dumps(values), "--root", str(runs.root)]
    assert main([*arguments, "--output", str(tmp_path / "out" / "tables.tex")]) == 0
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"tables.tex", "tables.txt", "results.csv"} <= made
    read = json.loads((tmp_path / "out" / "manifest.json").read_text())["inputs"]
    names = {"summary.json", "evaluation.json", "curve.jsonl"}
    assert {name.rpartition("/")[2] for name in read} == names


def beside_record(params, complete, rows):
    """Return parameters by which RAPID and PG are run, and held against these rows."""
    rows.to_csv(complete.root / "record.csv", index=False)
    more = {"only": ["pg", "rapid-H4"], "record": "record.csv"}
    return params.model_copy(update={"arena": params.arena.model_copy(update=more)})


def test_one_s_own_is_placed_among_those_on_record(params, complete):
    """The record is of a machine of half the speed; RAPID is run again, beside PG."""
    rows = record(read(params, complete))
    assert len(rows) == len(RATES) * len(SEEDS)
    rows[["seconds", "runtime"]] *= 2
    rows.loc[rows.algorithm == "rapid-H4", "seconds"] *= 50  # as it was run by somebody else
    slow = rows[rows.algorithm == "pg"].assign(seed=lambda own: own.seed + 100)
    slow["runtime"] *= 9  # seeds that are not run here say nothing of the machines
    whole = arena.fields(read(params, complete))[0]
    own = beside_record(params, complete, pd.concat([rows, slow]))
    assert {run.algorithm.split(",")[0] for run in arena_runs(own)} == {"pg", "rapid-H4"}
    placed = arena.fields(read(own, complete))[0]
    for name in RATES:
        for by in ("seconds", "accuracy", "accuracy_in_time"):
            expected = whole.compare(name, "pg", by).value
            assert placed.compare(name, "pg", by).value == pytest.approx(expected, abs=1e-9)
    content = contents.build_arena(read(own, complete))
    assert content.lead == [
        "On MATH (made) RAPID (H=4) is number 1 of 5 by seconds to 50%: 0.50 of PG's. "
        "Its learning rate was given, not tuned."
    ]
    assert content.headlines == []

    own = beside_record(params, complete, rows[rows.algorithm != "pg"])
    with pytest.raises(BadFile, match="no runs of pg on math"):
        arena.fields(read(own, complete))[0].compare("rapid-H4", "pg", "seconds")


@pytest.mark.parametrize("column", ["run", "reach"])
def test_a_record_of_another_field_is_refused(params, complete, column):
    """Tuning writes new rates and levels: runs on record are of those before."""
    rows = record(read(params, complete))
    last = rows.index[rows.algorithm == "dapo"][-1]
    rows.loc[last, column] = {"run": "dapo,learning_rate=0.5", "reach": 0.75}[column]
    own = beside_record(params, complete, rows)
    with pytest.raises(BadFile, match=r"on math dapo is .* run the whole arena again"):
        arena.fields(read(own, complete))[0].compare("rapid-H4", "pg", "seconds")


def test_the_record_is_scaled_by_seeds_that_have_a_run_here(params, complete):
    rows = record(read(params, complete))
    rows[["seconds", "runtime"]] *= 2
    expected = arena.fields(read(params, complete))[0].outcomes["dapo"].seconds
    [last] = [r for r in arena_runs(params) if r.algorithm.startswith("pg,") and r.seed == 8]
    complete.drop(complete.root / last.folder / "summary.json")
    own = beside_record(params, complete, rows)
    found = arena.fields(read(own, complete))[0].outcomes["dapo"].seconds
    assert dict(found) == pytest.approx(dict(expected))
