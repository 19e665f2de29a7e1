"""The arena's report from runs whose end points are known."""

import json

import numpy as np
import pandas as pd
import pytest

from rapid.artifacts.evaluations import CurvePoint
from rapid.artifacts.files import BadFile
from rapid.config.arena import Claim
from rapid.config.params import load
from rapid.config.specs import BASE, in_arena
from reports import contents
from reports.__main__ import main
from reports.measured import Measured
from reports.outcomes import FieldOutcomes, record
from reports.plots.arena import figures
from reports.statistics import crossed, times
from reports.statistics.decisions import detectable, provable
from reports.statistics.estimates import LEVEL, Estimate
from reports.tables import arena
from reports.tables.claims import FAILS, HOLDS, UNTESTED
from tests.conftest import ROOT
from tests.reports.conftest import run_of
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
    for run in in_arena(params):
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
    return Measured.read(params, runs.root, in_arena(params))


def test_verdicts_on_known_differences(params, complete):
    measured = read(params, complete)
    verdicts = arena.judge(measured)
    found = [one.verdict for one in verdicts]
    assert found == [HOLDS, FAILS, HOLDS, FAILS, arena.OPEN, arena.OPEN, HOLDS]
    assert arena.summary(measured, verdicts) == (
        "On MATH (made) RAPID (H=4) is number 1 of 5 by seconds to 50%: 0.50 of PG's. "
        "Of 7 claims written down beforehand 3 hold, 2 fail and 2 are open."
    )


def test_nobody_is_first_where_nobody_has_run(params, runs):
    assert "number 1" not in arena.summary(read(params, runs), [])


def test_the_field_is_ordered_by_time_and_then_by_accuracy(params, complete):
    """RAPID and DAPO are as fast; of equal completions RAPID is the more accurate."""
    (outcomes,) = arena.fields(read(params, complete))
    names = arena.order(outcomes)
    assert names == ["rapid-H4", "dapo", "pg-H4", "pg", "grpo"]
    assert (
        arena.place(outcomes, names, "pg")
        == "On MATH (made) PG is number 4 of 5 by seconds to 50%."
    )
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
    margin, difference = (of(same.found, 0.05 / 8) for of in (provable, detectable))
    assert same.seen == pytest.approx(margin) != pytest.approx(difference)


def test_runs_that_are_alike_test_nothing(params, complete):
    """RAPID solves what PG with the same H solves: its weights never acted."""
    for run in in_arena(params):
        if run.algorithm.startswith(("rapid-H4,problems=16", "pg-H4,")):
            complete.scored(run, [8] * (70 + run.seed) + [0] * (30 - run.seed))
    params.arena.fields["math"].claims[:] = [Claim(ours="rapid-H4", theirs="pg-H4", by="accuracy")]
    measured = read(params, complete)
    (verdict,) = arena.judge(measured)
    assert (verdict.verdict, verdict.seen) == (UNTESTED, None)
    assert "the part never acted" in verdict.found.reason
    said = "parts: 0 miss it, 0 are better without it, 0 open, 1 untested."
    assert said in arena.summary(measured, [verdict])


def known(p: float, value: float) -> Estimate:
    return Estimate(value, p_at=lambda limit: p)


def test_a_small_p_of_the_right_sign_never_fails():
    """Of 27 tests 0.0019 is not small enough; of the 26 that look for a difference it would be."""
    better = Claim(ours="grpo", theirs="pg", by="accuracy")
    same = Claim(ours="dapo", theirs="pg", by="accuracy", expect="same")
    claims = [(better, known(0.0019, 0.03)), *[(better, known(0.5, 0.01))] * 24]
    found, tests = arena.decide([*claims, (same, known(0.9, 0.0))], 0.02)
    assert tests == 27
    assert found[0] == (pytest.approx(27 * 0.0019), arena.OPEN)
    sooner = Claim(ours="grpo", theirs="pg", by="seconds")
    for p in (0.0019, 1 - LEVEL):
        for value, word in ((0.03, HOLDS), (-0.03, FAILS)):
            claims = (better, known(p, value)), (sooner, known(p, 1 - value))
            assert [arena.decide([one], 0.02)[0][0][1] for one in claims] == [word, word]


def test_a_claim_of_the_same_has_the_p_of_the_test_that_decides():
    same = Claim(ours="dapo", theirs="pg", by="accuracy", expect="same")
    for difference, within, p, word in (
        (1e-4, 1.0, 2e-4, FAILS), (1e-4, 1e-4, 2e-4, HOLDS), (0.5, 0.4, 0.8, arena.OPEN),
    ):  # fmt: skip
        one = Estimate(0.0, p_at=lambda at, p=(difference, within): p[0] if at == 0 else 2 * p[1])
        assert arena.decide([(same, one)], 0.02)[0] == [(pytest.approx(p), word)]


def test_comparisons_without_a_part_are_of_one_h_and_by_accuracy(values):
    maps = {"math": {"seeds": 2, "problems": 64, "n_step": [4], "H": [1, 4], "rate": 1e-4}}
    measured = Measured(load(values | {"arena": {"maps": maps}}), pd.DataFrame(), ROOT)
    whole = "rapid-H4"
    counted = [
        (whole, "pg-H4"), (whole, "rapid-H4,clip=nowhere"), ("rapid-H4,epochs=2", "pg-H4,epochs=2"),
        ("grpo-H4", "grpo-H4,epochs=2"),
    ]  # fmt: skip
    others = [
        (whole, "pg"), (whole, "grpo-H4"), ("grpo-H4", "pg-H4"), (whole, "grpo-H4,epochs=2"),
        ("rapid-H4,epochs=2", "pg-H4"), ("rapid-H4,eta=1", "rapid-H4,eta=4"),
        ("rapid-H4,eta=1", whole), (whole, "rapid-H2,eta=1"), ("pg-H4", whole),
    ]  # fmt: skip
    claims = [Claim(ours=a, theirs=b, by="accuracy") for a, b in [*counted, *others]]
    claims += [Claim(ours=whole, theirs="pg-H4", by="seconds")]
    claims += [Claim(ours=whole, theirs="pg-H4", by="accuracy", expect="same")]
    words = [FAILS, HOLDS, HOLDS, arena.OPEN] + [UNTESTED] * (len(claims) - 4)
    made = [
        arena.Verdict(None, claim, known(0.5, 0.0), 0.5, word, None)
        for claim, word in zip(claims, words, strict=True)
    ]
    said = "parts: 2 miss it, 1 are better without it, 1 open, 0 untested. Of 15 claims"
    assert said in arena.summary(measured, made)


def test_each_benchmark_has_a_table_of_claims_and_the_last_one_the_notes(params):
    measured = Measured(params, pd.DataFrame(), ROOT)
    claim = Claim(ours="rapid-H4", theirs="rapid-H4,eta=4", by="accuracy")
    made = [
        arena.Verdict(FieldOutcomes(name, None, measured), claim, known(p, 0.03), p, word, seen)
        for name, p, word, seen in (
            ("math", 0.01, HOLDS, 0.02), ("mbpp_plus", None, UNTESTED, None),
            ("math", 0.5, arena.OPEN, 0.1),
        )
    ]  # fmt: skip
    first, last = arena.claims(measured, made)
    assert (first.number, first.notes, last.number) == (1, [], 2)
    assert any("a difference of 2 points" in note for note in last.notes)
    assert any("all 2 tests of all claims" in note for note in last.notes)
    cells = [[cell.text for cell in row.cells[0]] for row in [*first.rows, *last.rows]]
    assert cells == [
        ["+3.0", "0.010", "2.0", HOLDS],
        ["+3.0", "0.500", "10.0", arena.OPEN],
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
        claims = []
        for claim, truth, _ in cases:
            drawn = truth + chance.normal(0, 0.02, 20)
            seconds = claim.by == "seconds"
            one = times.ratio(np.exp(drawn), np.ones(20)) if seconds else None
            claims.append((claim, one or crossed.estimate(drawn[:, None], (-1, 1))))
        words = (word for _, word in arena.decide(claims, 0.02)[0])
        wrong += any(word in case[2] for word, case in zip(words, cases, strict=True))
    assert wrong / arenas < 0.05 + noise(arenas)


def test_what_samples_more_is_compared_after_equal_completions(params, complete):
    """DAPO is at 50 % after as many as PG has in all: 20 points and chance below PG."""
    (outcomes,) = arena.fields(read(params, complete))
    assert outcomes.compare("dapo", "pg", "accuracy").value == pytest.approx(-0.205)
    assert outcomes.compare("grpo", "pg", "accuracy").value == pytest.approx(-0.2)


def test_who_never_gets_there_is_last(params, complete):
    """Behind it is only who has no runs. Of two the mean accuracy decides, of 7 runs and of 8."""
    for run in in_arena(params):
        solved = {"grpo": 40, "pg-H4": 45}.get(run.algorithm.split(",")[0])
        if solved:
            complete.scored(run, [8] * solved + [0] * (100 - solved))
            complete.curve(run, CurvePoint(step=8, seconds=1.0, pass_at={1: 0.4}))
        if run.algorithm.startswith("dapo,") or (solved == 45 and run.seed == 8):  # not there
            for name in ("curve.jsonl", "evaluation.json"):
                complete.drop(complete.root / run.evaluation / name)
            complete.drop(complete.root / run.folder / "summary.json")
    (outcomes,) = arena.fields(read(params, complete))
    names = arena.order(outcomes)
    assert names == ["rapid-H4", "pg", "pg-H4", "grpo", "dapo"]
    table = arena.standings(outcomes, 1)
    *_, grpo, dapo = (row.cells[0] for row in table.rows)
    assert grpo[0].text == "never"
    none = "fewer than two runs have a curve"
    assert [(cell.text, cell.reason) for cell in dapo] == [("—", none)] * 9
    assert "Runs: 8 of each, but 7 of PG (H=4) and 0 of DAPO." in table.notes[0]
    said = "On MATH (made) DAPO is number 5 of 5 by seconds to 50%."
    assert arena.place(outcomes, names, "dapo") == said


def test_who_never_gets_there_is_drawn_at_the_edge(params, complete):
    for run in in_arena(params):
        if run.algorithm.startswith("grpo,"):
            complete.scored(run, [8] * 40 + [0] * 60)
            complete.curve(run, CurvePoint(step=8, seconds=1.0, pass_at={1: 0.4}))
    measured = read(params, complete)
    (outcomes,) = arena.fields(measured)
    left, _ = figures(measured)["arena-math"].draw().axes
    row = [arena.order(outcomes).index("grpo")]
    assert [one.get_marker() for one in left.lines if [*one.get_ydata()] == row] == [">"]


@pytest.mark.parametrize("fewer", ["pg", "dapo"])
def test_two_runs_of_each_are_compared(params, complete, fewer):
    for left in (2, 1):
        for run in in_arena(params):
            if run.algorithm.startswith(f"{fewer},") and run.seed > left:
                complete.drop(complete.root / run.evaluation / "curve.jsonl")
        (outcomes,) = arena.fields(read(params, complete))
        rows = {row.label: row.cells[0] for row in arena.standings(outcomes, 1).rows}
        said = {cell.text for cell in rows["DAPO"]}
        assert (said == {"—"}) == (left == 1)


@pytest.mark.parametrize("gone", ["nothing", "evaluations"])
def test_the_command_writes_a_page_of_what_there_is(params, complete, tmp_path, gone):
    for run in in_arena(params):
        if gone == "evaluations" and run.seed > 1:
            complete.drop(complete.root / run.evaluation / "evaluation.json")
    out = tmp_path / "out"
    arguments = ["--arena", "--config", params.model_dump_json(), "--root", str(complete.root)]
    arguments += ["--output", str(out / "tables.tex"), "--html", str(out / "report.html")]
    assert main([*arguments, "--figures", str(out / "figures")]) == 0
    html, text = ((out / name).read_text() for name in ("report.html", "tables.txt"))
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
    slow = rows[rows.algorithm == "pg"].assign(seed=lambda own: own.seed + 100)
    slow["runtime"] *= 9  # seeds that are not run here say nothing of the machines
    whole = arena.fields(read(params, complete))[0]
    own = beside_record(params, complete, pd.concat([rows, slow]))
    assert {run.algorithm.split(",")[0] for run in in_arena(own)} == {"pg", "rapid-H4"}
    placed = arena.fields(read(own, complete))[0]
    for name in RATES:
        for by in ("seconds", "accuracy", "accuracy_in_time"):
            expected = whole.compare(name, "pg", by).value
            assert placed.compare(name, "pg", by).value == pytest.approx(expected, abs=1e-9)
    content = contents.build_arena(read(own, complete))
    assert content.lead == (
        "On MATH (made) RAPID (H=4) is number 1 of 5 by seconds to 50%: 0.50 of PG's. "
        "Its learning rate was given, not tuned."
    )

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
    [last] = [r for r in in_arena(params) if r.algorithm.startswith("pg,") and r.seed == 8]
    complete.drop(complete.root / last.folder / "summary.json")
    own = beside_record(params, complete, rows)
    found = arena.fields(read(own, complete))[0].outcomes["dapo"].seconds
    assert dict(found) == pytest.approx(dict(expected))
