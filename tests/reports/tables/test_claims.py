"""The paper's claims: what decides them, on runs made so that the answer is known."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rapid.config.params import load
from rapid.config.specs import Run
from reports import contents
from reports.measured import Contest, Measured
from reports.statistics.estimates import LEVEL, Estimate, student
from reports.tables import claims, results
from reports.tables.claims import FAILS, HOLDS, OPEN, UNTESTED, Evidence
from tests.reports.conftest import MADE
from tests.reports.conftest import run_of as run


class Finding:
    """A row of the table of claims."""

    def __init__(self, row):
        self.about, _, self.where = row.label.partition(": ")
        verdict, here, _, paper = row.cells[0]
        self.verdict, self.here, self.reason = verdict.text, here.text, here.reason
        self.paper = paper.text


def findings(params, runs):
    return [Finding(row) for row in claims.table(Measured.read(params, runs.root)).rows]


def finding(params, runs, about, where="MATH (made)"):
    (row,) = (
        row for row in findings(params, runs) if row.about == about and row.where.startswith(where)
    )
    return row


# Decisions ----------------------------------------------------------------------------------------


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
    estimate = student(value, 1.0, math.inf, "")
    expected = (pytest.approx(2 * stats.norm.sf(p)), verdict)
    assert claims.locate(estimate, **limits) == expected


@pytest.mark.parametrize(
    ("tests", "decision"),
    [
        ([(1e-4, HOLDS), (1e-4, FAILS)], (2e-4, HOLDS)),
        ([(0.4, HOLDS), (1e-4, FAILS)], (2e-4, FAILS)),
        ([(0.4, HOLDS), (0.5, FAILS)], (0.8, OPEN)),
        ([(1 - LEVEL, FAILS)], (0.05, FAILS)),
        ([], (None, UNTESTED)),
    ],
)
def test_the_first_test_with_a_small_p_decides(tests, decision):
    ((p, verdict),) = claims.decide([tests])
    assert (p and pytest.approx(p), verdict) == decision


@dataclass
class Stub:
    """Claims with evidence of which the p are known."""

    about: str
    ps: list[float]
    rule: str = "rule"

    def collect_evidence(self, measured):
        estimate = Estimate(1.0, 0.0, 2.0, p_at=lambda limit: 0.0)
        return [Evidence(f"{self.about}: here", estimate, tests=[(p, HOLDS)]) for p in self.ps]


def test_a_family_is_judged_together_and_other_claims_each_by_itself(params, runs):
    """At most 0.05 is small enough. Of all seven together 0.001, 0.001 and no others are."""
    limit = 1 - LEVEL
    families = [
        [Stub("a", [0.001])], [Stub("b", [limit])], [Stub("c", [limit]), Stub("d", [limit])],
        [Stub("e", [0.001, 0.5])],
    ]  # fmt: skip
    measured = Measured.read(params, runs.root)
    table = claims.claims_table("claims", measured, families)
    rows = [(row.cells[0][0].text, row.cells[0][2].text, row.section) for row in table.rows]
    assert rows == [
        (HOLDS, "0.001", False), (HOLDS, "0.050", True), (OPEN, "0.100", True),
        (OPEN, "0.100", False), (HOLDS, "0.002", True), (OPEN, "0.500", False),
    ]  # fmt: skip
    reasons = [row.cells[0][1].reason for row in table.rows]
    assert reasons == ["", "", claims.TOO_MANY, claims.TOO_MANY, "", claims.TOO_NOISY]
    said = "Of 3 verdicts that hold or do not, 2 would stand if all 6 comparisons were adjusted"
    assert said in table.notes[0]
    assert table.listed == [(name, "rule") for name in "abcde"]


# What is compared ---------------------------------------------------------------------------------


def test_the_limits_are_the_papers_figures():
    below = {
        "RAPID faster": 1.0, "Saves 34%": 0.665, "Saves 32%": 0.685, "Saves 11%": 0.895,
        "Saves 89% of naive": 0.115, "Runtime falls": 0, "5% clipped": 0.1,
    }  # fmt: skip
    above = {
        "Accuracy kept": -0.02, "Accuracy gained": 0, "Staleness grows": 0, "Longer with H": 1,
        "5% clipped": 0.025, "Clipping crucial": 0, "Weights beat KL": 0,
    }  # fmt: skip
    every = [claim for family in claims.load_claims() for claim in family]
    for claim in every:
        limits = above.get(claim.about, -math.inf), below.get(claim.about, math.inf)
        assert (claim.above, claim.below) == pytest.approx(limits), claim.about
    assert {claim.about for claim in every} == {*above, *below}
    rules = {claim.about: claim.rule for claim in every}
    assert rules["Saves 11%"].endswith("claims on MATH: the same ratio is at most 0.89.")
    assert rules["5% clipped"].endswith("half and twice the paper's: 2.5% and 10.0%.")


def leave(runs, metric: str, values: dict[str, tuple]) -> None:
    """Leave runs on MATH with this metric, by algorithm and seed; `correct` is by problem."""
    for name, by_seed in values.items():
        for seed, value in enumerate(by_seed):
            if metric == "correct":
                runs.scored(run(name, seed), value)
            else:
                runs.summary(run(name, seed), **{metric: value})


CORRECT = {"pg": [[4, 4, 3, 5] * 10] * 2}
MANY, FEW = [[6, 7] * 20] * 2, [[2, 3] * 20] * 2
OTHERS = {"sft": (1, 1), "dapo": (1, 1), "rapid-H2": (1, 1)}  # however well another one does


@pytest.mark.parametrize(
    ("about", "metric", "measured", "verdict"),
    [
        ("RAPID faster", "seconds", {"rapid-H4": (10, 11), "pg": (100, 112), **OTHERS}, HOLDS),
        ("RAPID faster", "seconds", {"rapid-H4": (95, 95.01), "pg": (100, 100)}, HOLDS),
        ("RAPID faster", "seconds", {"rapid-H4": (100, 112), "pg": (10, 11), **OTHERS}, FAILS),
        ("RAPID faster", "seconds", {"rapid-H4": (10, 20), "pg": (20, 10)}, OPEN),
        ("Saves 11%", "seconds", {"rapid-H4": (10, 11), "pg": (100, 112), **OTHERS}, HOLDS),
        ("Saves 11%", "seconds", {"rapid-H4": (95, 95.01), "pg": (100, 100)}, FAILS),
        ("Saves 89% of naive", "seconds", {"rapid-H4": (1, 1), "naive-grpo": (9, 9.01)}, HOLDS),
        ("Accuracy kept", "correct", CORRECT | {"rapid-H4": [[7, 6] * 20] * 2}, HOLDS),
        ("Accuracy kept", "correct", CORRECT | {"rapid-H4": [[1, 0] * 20] * 2}, FAILS),
        ("Accuracy kept", "correct", CORRECT | {"rapid-H4": [[8, 0] * 19 + [4, 4]] * 2}, OPEN),
        ("Longer with H", "completion_length", {"rapid-H4": (30, 31), "rapid-H8": (40, 41)}, HOLDS),
        ("Staleness grows", "staleness", {"rapid-H2": (0.1, 0.101), "rapid-H4": (0.2, 0.21)}, HOLDS),
        ("Runtime falls", "seconds", {"rapid-H2": (50, 51), "rapid-H4": (60, 61)}, FAILS),
        ("5% clipped", "clip_fraction", {"rapid-H2": (0.05, 0.052)}, HOLDS),
        ("5% clipped", "clip_fraction", {"rapid-H2": (0.001, 0.002)}, FAILS),
        ("5% clipped", "clip_fraction", {"rapid-H2": (0.3, 0.31)}, FAILS),
        ("5% clipped", "clip_fraction", {"rapid-H2": (0, 0.1)}, OPEN),
        ("Clipping crucial", "correct", {"rapid-H4": MANY, "rapid-H4,clip=nowhere": FEW}, HOLDS),
        ("Weights beat KL", "correct", {"rapid-H4": MANY, "grpo-H4": FEW}, HOLDS),
    ],
)  # fmt: skip
def test_verdicts_on_known_runs(values, runs, about, metric, measured, verdict):
    """On MATH (made) it is RAPID with H = 4 and PG, unless the claim says otherwise."""
    values["tables"]["staleness"]["H"] = [2, 4, 8]
    values["tables"]["main"]["algorithms"] += ["rapid-H4,clip=nowhere", "grpo-H4"]
    leave(runs, metric, measured)
    assert finding(load(values), runs, about).verdict == verdict


def test_each_saving_is_claimed_on_its_own_benchmark(params, runs):
    """The paper's ratio stands beside: of RAPID (H=4) 4h14m / 4h49m, of RAPID (H=8) none here."""
    leave(runs, "seconds", {"rapid-H4": (10, 11), "pg": (100, 112)})
    every = [row for row in findings(params, runs) if "Saves" in row.about]
    naive = {f"Saves 89% of naive {name}": "0.11" for name in ("MBPP+ (made)", "MATH (made)")}
    expected = {"Saves 34% MBPP+ (made)": "0.81", "Saves 11% MATH (made)": "0.88", **naive}
    assert {f"{row.about} {row.where}": row.paper for row in every} == expected


def test_the_models_of_table_2_are_asked_too_beside_their_own_figure(values, runs):
    values["tables"]["families"]["algorithms"] = ["pg", "rapid-H4"]
    for seed, seconds in enumerate((10, 11)):
        for name, times in (("rapid-H4", 1), ("pg", 10)):
            of_llama = Run(benchmark="mbpp_plus", model="tiny-llama", algorithm=name, seed=seed)
            runs.summary(of_llama, seconds=seconds * times)
    row = finding(load(values), runs, "RAPID faster", "MBPP+ (made), tiny-llama")
    assert (row.reason, row.here) == (claims.TOO_FEW, "0.10")  # of the table's one seed
    assert row.paper == "0.82"  # 15.2m / 18.5m


def test_accuracy_gained_is_of_pass_at_8(params, runs):
    for seed in (0, 1):
        runs.scored(run("pg", seed, "mbpp_plus"), [0, 1] * 20, ks=(1, 8))
        runs.scored(run("rapid-H4", seed, "mbpp_plus"), [1, 1] * 20, ks=(1, 8))
    row = finding(params, runs, "Accuracy gained", "MBPP+ (made) Pass")
    assert (row.verdict, row.where) == (HOLDS, "MBPP+ (made) Pass@8")
    assert row.here.startswith("+50.0 [")


def test_what_depends_on_h_is_of_table_3s_runs_in_all_tables(values, runs):
    """Table 1 has RAPID with another H too, and a variant of one."""
    values["tables"]["main"]["algorithms"] += ["rapid-H16", "rapid-H4,eta=1"]
    for seed in (0, 1):
        for name, stale in (("2", 0.1), ("4", 0.2 + seed), ("16", 9.0), ("4,eta=1", 5.0)):
            runs.summary(run(f"rapid-H{name}", seed), staleness=stale, clip_fraction=stale / 40)
    measured = Measured.read(load(values), runs.root)
    r = f"{np.corrcoef([2, 2, 4, 4], [0.1, 0.1, 0.2, 1.2])[0, 1]:.3f}"
    rows = claims.table(measured).rows
    (judged,) = (row for row in rows if row.label == "Staleness grows: MATH (made)")
    (row,) = (row for row in results.correlations(measured).rows if row.label == "MATH (made)")
    cells = judged.cells[0][1], row.cells[0][3]
    assert {cell.text.partition(" ")[0] for cell in cells} == {r}
    assert [len(cell.sources) for cell in cells] == [4, 4]
    assert judged.cells[0][3].text == "0.936"  # of the paper
    assert finding(load(values), runs, "5% clipped").here.startswith("1.0%")


def test_where_the_papers_h_is_missing_the_least_is_asked():
    contest = Contest("math", "any", pd.DataFrame(), ["pg", "rapid-H16", "rapid-H2"], MADE)
    assert claims.select_rapid(contest) == "rapid-H2"
    assert claims.select_rapid(contest, "rapid-H16") == "rapid-H16"
    assert claims.select_rapid(replace(contest, algorithms=["pg"])) == "rapid-H4"  # has no runs


def test_without_runs_nothing_is_tested(params, runs):
    every = findings(params, runs)
    assert {row.verdict for row in every} == {UNTESTED}
    reasons = {row.about: row.reason for row in every}
    assert all(reasons.values())
    assert reasons["Clipping crucial"].startswith("needs runs without clipping")
    content = contents.build_report(Measured.read(params, runs.root))
    assert f"0 hold, 0 fail, 0 are open and {len(every)} are not tested" in content.lead


def test_every_claim_has_a_row(params, runs):
    runs.all(params)
    of_minif2f = "Saves 32%"  # which these parameters have not
    asked = {claim.about for family in claims.load_claims() for claim in family}
    every = findings(params, runs)
    assert {row.about for row in every} == asked - {of_minif2f}
    models = ["MBPP+ (made), tiny_qwen", "MBPP+ (made), tiny-llama"]
    for about, places in {
        "RAPID faster": ["MBPP+ (made)", "MATH (made)", *models],
        "Accuracy kept": [
            "MBPP+ (made) Pass@1", "MBPP+ (made) Pass@8", "MATH (made) Pass@1",
            *(f"{model} Pass@1" for model in models),
        ],
        "Accuracy gained": ["MBPP+ (made) Pass@8", *(f"{model} Pass@8" for model in models)],
        "Longer with H": ["MATH (made)"],
        "5% clipped": ["MATH (made)"],
    }.items():  # fmt: skip
        assert [row.where for row in every if row.about == about] == places
