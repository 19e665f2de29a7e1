"""The paper's claims: what decides them, on runs made so that the answer is known."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rapid.config.params import load
from rapid.config.specs import Run
from reports import contents
from reports.formats import MINUS
from reports.measured import Contest, Measured
from reports.statistics.estimates import LEVEL, Estimate, student
from reports.tables import claims, results, versus_paper
from reports.tables.claims import FAILS, HOLDS, OPEN, UNTESTED
from tests.reports.conftest import MADE
from tests.reports.conftest import run_of as run


@pytest.fixture
def measured(params, runs):
    return Measured.read(params, runs.root)


class Finding:
    """A row of the table of claims."""

    def __init__(self, row):
        self.about, _, self.where = row.label.partition(": ")
        verdict, here, _, paper = row.cells[0]
        self.verdict, self.here, self.reason = verdict.text, here.text, here.reason
        self.paper = paper.text


def findings(params, runs):
    return [Finding(row) for row in claims.table(Measured.read(params, runs.root)).rows]


def found(params, runs, about, where="MATH (made)"):
    every = findings(params, runs)
    (one,) = (f for f in every if f.about == about and f.where.startswith(where))
    return one


def timed(runs, seconds: dict[str, tuple[float, float]]):
    for name, pair in seconds.items():
        for seed, value in enumerate(pair):
            runs.summary(run(name, seed), seconds=value)


def claim(**limits):
    return claims.Claim("about", "rule", lambda measured, contest: [], **limits)


@pytest.mark.parametrize(
    ("value", "limits", "verdict", "p"),
    [
        (2.0, {"above": 0}, HOLDS, 2.0),
        (-2.0, {"above": 0}, FAILS, 2.0),
        (2.0, {"below": 1}, FAILS, 1.0),
        (-2.0, {"below": 1}, HOLDS, 3.0),
        (1.0, {"above": 0, "below": 4}, HOLDS, 1.0),  # as certain as at the nearer limit
        (5.0, {"above": 0, "below": 4}, FAILS, 1.0),
        (-3.0, {"above": 0, "below": 4}, FAILS, 3.0),
        (0.0, {"above": 0}, FAILS, 0.0),
    ],
)
def test_a_verdict_is_the_side_of_the_limit_and_p_that_of_the_limit(value, limits, verdict, p):
    found = student(value, 1.0, math.inf, "")
    assert claim(**limits).judge(found) == (verdict, pytest.approx(2 * stats.norm.sf(p)))


def test_the_limits_are_the_papers_figures():
    below = {
        "RAPID faster": 1.0, "Saves 34%": 0.665, "Saves 32%": 0.685, "Saves 11%": 0.895,
        "Saves 89% of naive": 0.115, "Runtime falls": 0, "5% clipped": 0.1,
    }  # fmt: skip
    above = {
        "Accuracy kept": -0.02, "Accuracy gained": 0, "Staleness grows": 0, "Longer with H": 1,
        "5% clipped": 0.025, "Clipping crucial": 0, "Weights beat KL": 0,
    }  # fmt: skip
    for one in claims.claims():
        limits = above.get(one.about, -math.inf), below.get(one.about, math.inf)
        assert (one.above, one.below) == pytest.approx(limits), one.about
    assert {one.about for one in claims.claims()} == {*above, *below}


def test_each_saving_is_claimed_on_its_own_benchmark(params, runs):
    """The paper's ratio stands beside: of RAPID (H=4) 4h14m / 4h49m, of RAPID (H=8) none here."""
    timed(runs, {"rapid-H4": (10, 11), "pg": (100, 112)})
    every = [one for one in findings(params, runs) if "Saves" in one.about]
    naive = {f"Saves 89% of naive {name}": "0.11" for name in ("MBPP+ (made)", "MATH (made)")}
    expected = {"Saves 34% MBPP+ (made)": "0.81", "Saves 11% MATH (made)": "0.88", **naive}
    assert {f"{one.about} {one.where}": one.paper for one in every} == expected


@pytest.mark.parametrize(
    ("rapid", "pg", "faster", "saves"),
    [
        ((10, 11), (100, 112), HOLDS, HOLDS),
        ((95, 95.01), (100, 100), HOLDS, FAILS),
        ((100, 112), (10, 11), FAILS, FAILS),
        ((10, 20), (20, 10), OPEN, OPEN),
    ],
)
def test_faster(params, runs, rapid, pg, faster, saves):
    """On MATH (made) it is RAPID with H = 4 and PG, however well another H or baseline does."""
    timed(runs, {"rapid-H4": rapid, "pg": pg, "rapid-H2": (1, 1), "dapo": (1, 1), "sft": (1, 1)})
    names = ("RAPID faster", "Saves 11%")
    assert [found(params, runs, name).verdict for name in names] == [faster, saves]


def test_the_models_of_table_2_are_asked_too_beside_their_own_figure(values, runs):
    values["tables"]["families"]["algorithms"] = ["pg", "rapid-H4"]
    for seed, seconds in enumerate((10, 11)):
        for name, times in (("rapid-H4", 1), ("pg", 10)):
            one = Run(benchmark="mbpp_plus", model="tiny-llama", algorithm=name, seed=seed)
            runs.summary(one, seconds=seconds * times)
    one = found(load(values), runs, "RAPID faster", "MBPP+ (made), tiny-llama")
    assert (one.reason, one.here) == (claims.TOO_FEW, "0.10")  # of the table's one seed
    assert one.paper == "0.82"  # 15.2m / 18.5m


def test_many_rows_of_one_claim_are_adjusted_for(measured):
    """Four rows of p = 0.02 each: alone each would hold, together none does."""
    one = claims.Evidence("here", None, student(0.0, 1.0, math.inf, ""), str, "")
    asked = claim(below=stats.norm.isf(0.02 / 2), benchmark="math")
    for rows, verdict in ((1, HOLDS), (4, OPEN)):
        asked = replace(asked, evidence=lambda m, c, n=rows: [one] * n)
        table = claims.judged(measured, [asked], number=1, label="", caption="")
        cells = [row.cells[0] for row in table.rows]
        assert {cell[0].text for cell in cells} == {verdict}
        assert {cell[2].text for cell in cells} == {f"{0.02 * rows:.3f}"}
        assert {cell[1].reason for cell in cells} == {claims.TOO_MANY if rows > 1 else ""}


def with_p(p: float, about: str, family: str = ""):
    """A claim that holds if this p is small enough."""
    one = claims.Evidence("here", None, Estimate(1.0, 0.0, 2.0, p_at=lambda limit: p), str, "")
    rest = {"above": 0.0, "benchmark": "math", "family": family}
    return claims.Claim(about, "rule", lambda measured, contest: [one], **rest)


def test_neighbours_of_a_family_are_judged_together_and_other_claims_each_by_itself(measured):
    """At most 0.05 is small enough. Of all five together 0.001, 0.001 and no others are."""
    limit = 1 - LEVEL
    asked = [
        with_p(0.001, "a"), with_p(limit, "b"), with_p(limit, "c", "one"), with_p(limit, "d", "one"),
        with_p(0.001, "e"), with_p(0.5, "f"),
    ]  # fmt: skip
    table = claims.judged(measured, asked, number=1, label="", caption="")
    found = [(row.cells[0][0].text, row.cells[0][2].text, row.section) for row in table.rows]
    assert found == [
        (HOLDS, "0.001", False), (HOLDS, "0.050", True), (OPEN, "0.100", True),
        (OPEN, "0.100", False), (HOLDS, "0.001", True), (OPEN, "0.500", True),
    ]  # fmt: skip
    reasons = [row.cells[0][1].reason for row in table.rows]
    assert reasons == ["", "", claims.TOO_MANY, claims.TOO_MANY, "", claims.TOO_NOISY]
    said = "Of 3 verdicts that hold or do not, 2 would stand if all 6 comparisons were adjusted"
    assert said in table.notes[0]
    assert table.listed == [(name, "rule") for name in "abcdef"]
    alone = claims.judged(measured, [with_p(limit, "b")], number=1, label="", caption="")
    assert "Of 1 verdicts that hold or do not, 1 would stand" in alone.notes[0]


@pytest.mark.parametrize(
    ("correct", "verdict"),
    [([7, 6] * 20, HOLDS), ([1, 0] * 20, FAILS), ([8, 0] * 19 + [4, 4], OPEN)],
)
def test_accuracy_kept(params, runs, correct, verdict):
    for seed in (0, 1):
        runs.scored(run("pg", seed), [4, 4, 3, 5] * 10)
        runs.scored(run("rapid-H4", seed), correct)
    assert found(params, runs, "Accuracy kept").verdict == verdict


def test_accuracy_gained_is_of_pass_at_8(params, runs):
    for seed in (0, 1):
        runs.scored(run("pg", seed, "mbpp_plus"), [0, 1] * 20, ks=(1, 8))
        runs.scored(run("rapid-H4", seed, "mbpp_plus"), [1, 1] * 20, ks=(1, 8))
    one = found(params, runs, "Accuracy gained", "MBPP+ (made) Pass")
    assert (one.verdict, one.where) == (HOLDS, "MBPP+ (made) Pass@8")
    assert one.here.startswith("+50.0 [")


def test_length_by_h(values, runs):
    values["tables"]["staleness"]["H"] = [4, 8]
    for seed in (0, 1):
        runs.summary(run("rapid-H4", seed), completion_length=30 + seed)
        runs.summary(run("rapid-H8", seed), completion_length=40 + seed)
    assert found(load(values), runs, "Longer with H").verdict == HOLDS


@pytest.mark.parametrize(
    ("about", "other"),
    [("Clipping crucial", "rapid-H4,clip=nowhere"), ("Weights beat KL", "grpo-H4")],
)
def test_rapid_beside_another_at_the_same_h(values, runs, about, other):
    assert found(load(values), runs, about, "").reason.startswith("needs ")
    values["tables"]["main"]["algorithms"].append(other)
    for seed in (0, 1):
        runs.scored(run("rapid-H4", seed), [6, 7] * 20)
        runs.scored(run(other, seed), [2, 3] * 20)
    one = found(load(values), runs, about)
    assert (one.verdict, one.where) == (HOLDS, "MATH (made) Pass@1, H=4")


def test_staleness_and_runtime_by_h(params, runs):
    for h, seed, stale, seconds in (
        (2, 0, 0.10, 50), (2, 1, 0.101, 51), (4, 0, 0.20, 60), (4, 1, 0.201, 61),
    ):  # fmt: skip
        runs.summary(run(f"rapid-H{h}", seed), seconds=seconds, staleness=stale)
    assert found(params, runs, "Staleness grows").verdict == HOLDS
    assert found(params, runs, "Runtime falls").verdict == FAILS


def test_what_depends_on_h_is_of_table_3s_runs_in_all_tables(values, runs):
    """Table 1 has RAPID with another H too, and a variant of one."""
    values["tables"]["main"]["algorithms"] += ["rapid-H16", "rapid-H4,eta=1"]
    for seed in (0, 1):
        for name, stale in (("2", 0.1), ("4", 0.2 + seed), ("16", 9.0), ("4,eta=1", 5.0)):
            runs.summary(run(f"rapid-H{name}", seed), staleness=stale, clip_fraction=stale / 40)
    measured = Measured.read(load(values), runs.root)
    r = f"{np.corrcoef([2, 2, 4, 4], [0.1, 0.1, 0.2, 1.2])[0, 1]:.3f}"
    (judged,) = (
        one for one in claims.table(measured).rows if "Staleness grows: MATH (made)" in one.label
    )
    (sign,) = (
        one for one in versus_paper.signs(measured).rows if "MATH (made): H and St" in one.label
    )
    (row,) = (one for one in results.correlations(measured).rows if one.label == "MATH (made)")
    cells = judged.cells[0][1], sign.cells[0][1], row.cells[0][3]
    assert {cell.text.partition(" ")[0] for cell in cells} == {r}
    assert [len(cell.sources) for cell in cells] == [4, 4, 4]
    assert found(load(values), runs, "5% clipped").here.startswith("1.0%")


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [((0.05, 0.052), HOLDS), ((0.001, 0.002), FAILS), ((0.3, 0.31), FAILS), ((0, 0.1), OPEN)],
)
def test_clipped(params, runs, shares, verdict):
    for seed, share in enumerate(shares):
        runs.summary(run("rapid-H2", seed), clip_fraction=share)
    assert found(params, runs, "5% clipped").verdict == verdict


def test_where_the_papers_h_is_missing_the_least_is_asked():
    contest = Contest("math", "any", pd.DataFrame(), ["pg", "rapid-H16", "rapid-H2"], MADE)
    assert claims.rapid(contest) == "rapid-H2"
    assert claims.rapid(contest, "rapid-H16") == "rapid-H16"
    assert claims.rapid(replace(contest, algorithms=["pg"])) == "rapid"  # which has no runs


def test_without_runs_nothing_is_tested(params, runs):
    every = findings(params, runs)
    assert {one.verdict for one in every} == {UNTESTED}
    assert all(one.reason for one in every)
    content = contents.build_report(Measured.read(params, runs.root))
    assert f"0 hold, 0 fail, 0 are open and {len(every)} are not tested" in content.lead


def test_every_claim_has_a_row(params, runs):
    runs.all(params)
    of_minif2f = "Saves 32%"  # which these parameters have not
    asked, every = {one.about for one in claims.claims()}, findings(params, runs)
    assert {one.about for one in every} == asked - {of_minif2f}
    models = ["MBPP+ (made), tiny_qwen Pass@", "MBPP+ (made), tiny-llama Pass@"]
    for about, places in {
        "RAPID faster": [
            "MBPP+ (made)",
            "MATH (made)",
            "MBPP+ (made), tiny_qwen",
            "MBPP+ (made), tiny-llama",
        ],
        "Accuracy kept": [
            "MBPP+ (made) Pass@1",
            "MBPP+ (made) Pass@8",
            "MATH (made) Pass@1",
            *(f"{m}1" for m in models),
        ],
        "Accuracy gained": ["MBPP+ (made) Pass@8", *(f"{m}8" for m in models)],
        "Longer with H": ["MATH (made)"],
        "5% clipped": ["MATH (made)"],
    }.items():
        assert [one.where for one in every if one.about == about] == places


def test_places_and_kendalls_tau_by_hand(params, runs):
    """Of means: PG has one run. In runtime SFT takes no part, nor does what the paper has not."""
    # The paper's order on MATH by time: RAPID (H=4) 4h14, DAPO 4h47, PG 4h49, GRPO 5h36.
    timed(runs, {"grpo": (1, 1), "rapid-H4": (2, 2), "dapo": (3, 3), "pg": (4,), "sft": (0.5, 0.5)})
    for name, correct in {"rapid-H4": 5, "pg": 4, "naive-grpo": 8}.items():  # 29.5 % and 30.6 %
        runs.scored(run(name), [correct])
    table = versus_paper.orders(Measured.read(params, runs.root))
    accuracy, time = ({row.label: row.cells[1][n].text for row in table.rows} for n in (0, 1))
    names = ("RAPID (H=4)", "DAPO", "PG", "GRPO", "SFT")
    assert [time[name] for name in names] == ["1 / 2", "2 / 3", "3 / 4", "4 / 1", "—"]
    assert time["Kendall's tau"] == "0.000"  # 3 of 6 pairs agree
    assert [accuracy[name] for name in names] == ["2 / 1", "—", "1 / 2", "—", "—"]
    assert accuracy["Kendall's tau"] == f"{MINUS}1.000"
    labels = ["SFT", "GRPO", "PG", "DAPO", "RAPID (H=4)", "RAPID (H=2)", "Kendall's tau"]
    assert [(row.label, row.section) for row in table.rows] == [
        (label, label == "Kendall's tau") for label in labels
    ]


def test_signs_and_whose_may_be_chance(params, runs):
    """The paper's r on MATH: -0.648 of accuracy, -0.666 of time, 0.936 of staleness, 12 runs."""
    for h, seed, stale, seconds, correct in (
        (2, 0, 0.100, 10, 5), (2, 1, 0.101, 11, 3), (4, 0, 0.200, 20, 4), (4, 1, 0.201, 21, 2),
    ):  # fmt: skip
        one = run(f"rapid-H{h}", seed)
        runs.summary(one, seconds=seconds, staleness=stale)
        runs.scored(one, [correct] * 20)
    rows = versus_paper.signs(Measured.read(params, runs.root)).rows
    assert {row.label: row.cells[0][2].text for row in rows if "MATH (made)" in row.label} == {
        "MATH (made): H and Pass@1": "yes (in noise: here)",
        "MATH (made): H and Time": "no",
        "MATH (made): H and Stale": "yes",
    }
    assert {row.cells[0][2].text for row in rows if "MBPP+ (made)" in row.label} == {"—"}
