"""Verdicts on the paper's claims, on runs with known differences."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rapid.config.params import load
from rapid.config.specs import Run
from reports import contents
from reports.report_data import BenchmarkRuns, ReportData
from reports.statistics.estimates import CONFIDENCE_LEVEL, Estimate, student_estimate
from reports.tables import claims, results
from reports.tables.claims import FAILS, HOLDS, OPEN, UNTESTED, Evidence
from tests.reports.conftest import MADE_PROBLEMS, make_run


class ClaimRow:
    """The label and cells of a row in the table of claims."""

    def __init__(self, row):
        self.about, _, self.place = row.label.partition(": ")
        verdict, value, _, paper_value = row.cells[0]
        self.verdict, self.value_text, self.reason = verdict.text, value.text, value.reason
        self.paper_text = paper_value.text


def claim_rows(params, runs):
    return [
        ClaimRow(row)
        for row in claims.build_paper_claims_table(ReportData.read(params, runs.root)).rows
    ]


def find_claim_row(params, runs, about, place="MATH (made)"):
    rows = [row for row in claim_rows(params, runs) if row.about == about]
    (row,) = (row for row in rows if row.place.startswith(place))
    return row


# Decisions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "limits", "verdict", "p"),
    [
        (2.0, {"above": 0}, HOLDS, 2.0),
        (-2.0, {"above": 0}, FAILS, 2.0),
        (2.0, {"below": 1}, FAILS, 1.0),
        (-2.0, {"below": 1}, HOLDS, 3.0),
        (1.0, {"above": 0, "below": 4}, HOLDS, 1.0),  # p is that of the nearer limit
        (5.0, {"above": 0, "below": 4}, FAILS, 1.0),
        (-3.0, {"above": 0, "below": 4}, FAILS, 3.0),
        (0.0, {"above": 0}, FAILS, 0.0),
    ],
)
def test_verdict_depends_on_the_side_of_the_limit(value, limits, verdict, p):
    estimate = student_estimate(value, 1.0, math.inf, "")
    expected = (pytest.approx(2 * stats.norm.sf(p)), verdict)
    assert claims.build_test(estimate, **limits) == expected


@pytest.mark.parametrize(
    ("tests", "decision"),
    [
        ([(1e-4, HOLDS), (1e-4, FAILS)], (2e-4, HOLDS)),
        ([(0.4, HOLDS), (1e-4, FAILS)], (2e-4, FAILS)),
        ([(0.4, HOLDS), (0.5, FAILS)], (0.8, OPEN)),
        ([(1 - CONFIDENCE_LEVEL, FAILS)], (0.05, FAILS)),
        ([], (None, UNTESTED)),
    ],
)
def test_first_test_with_a_small_p_decides(tests, decision):
    (row,) = claims.decide_claims([Evidence("a claim", Estimate(1.0), tests=tests)])
    assert (row.p and pytest.approx(row.p), row.verdict) == decision


@dataclass
class StubClaim:
    """A claim with evidence of known p."""

    about: str
    ps: list[float]
    rule: str = "rule"

    def collect_evidence(self, data):
        estimate = Estimate(1.0, 0.0, 2.0, p_at=lambda limit: 0.0)
        return [Evidence(f"{self.about}: here", estimate, tests=[(p, HOLDS)]) for p in self.ps]


def test_holm_adjustment_is_applied_within_a_family_of_claims(params, runs):
    """p of at most 0.05 decides. Adjusted over all comparisons, only the two of 0.001 would."""
    limit = 1 - CONFIDENCE_LEVEL
    families = [
        [StubClaim("a", [0.001])], [StubClaim("b", [limit])],
        [StubClaim("c", [limit]), StubClaim("d", [limit])],
        [StubClaim("e", [0.001, 0.5])],
    ]  # fmt: skip
    data = ReportData.read(params, runs.root)
    table = claims.build_claims_table("claims", data, families)
    rows = [(row.cells[0][0].text, row.cells[0][2].text, row.starts_section) for row in table.rows]
    assert rows == [
        (HOLDS, "0.001", False), (HOLDS, "0.050", True), (OPEN, "0.100", True),
        (OPEN, "0.100", False), (HOLDS, "0.002", True), (OPEN, "0.500", False),
    ]  # fmt: skip
    reasons = [row.cells[0][1].reason for row in table.rows]
    assert reasons == ["", "", claims.NOT_SIGNIFICANT, claims.NOT_SIGNIFICANT, "", claims.TOO_NOISY]
    note = "Of 3 claims that hold or fail, 2 would still do so if p were adjusted for all 6 comparisons"
    assert note in table.notes[0]
    assert table.named_notes == [(name, "rule") for name in "abcde"]
    table_of_open_claims = claims.build_claims_table("claims", data, [[StubClaim("a", [0.5])]])
    assert "that hold or fail" not in table_of_open_claims.notes[0]


# Comparisons --------------------------------------------------------------------------------------


def test_limits_of_claims_are_the_papers_figures():
    below = {
        "RAPID faster": 1.0, "Saves 34%": 0.665, "Saves 32%": 0.685, "Saves 11%": 0.895,
        "Saves 89% of naive": 0.115, "Runtime falls": 0, "5% clipped": 0.1,
    }  # fmt: skip
    above = {
        "Accuracy kept": -0.02, "Accuracy gained": 0, "Staleness grows": 0, "Longer with H": 1,
        "5% clipped": 0.025, "Clipping crucial": 0, "Weights beat KL": 0,
    }  # fmt: skip
    all_claims = [claim for family in claims.load_claims() for claim in family]
    for claim in all_claims:
        limits = above.get(claim.about, -math.inf), below.get(claim.about, math.inf)
        assert (claim.above, claim.below) == pytest.approx(limits), claim.about
    assert {claim.about for claim in all_claims} == {*above, *below}
    rules = {claim.about: claim.rule for claim in all_claims}
    assert rules["Saves 11%"].endswith("claims on MATH: the ratio of runtimes is at most 0.89.")
    assert rules["5% clipped"].endswith("half and twice the paper's: 2.5% and 10.0%.")


def write_metric(runs, metric: str, values: dict[str, tuple]) -> None:
    """Write runs on MATH with this metric, by algorithm and seed; `correct` has lists by problem."""
    for name, by_seed in values.items():
        for seed, value in enumerate(by_seed):
            if metric == "correct":
                runs.write_scores(make_run(name, seed), value)
            else:
                runs.write_summary(make_run(name, seed), **{metric: value})


PG_CORRECT = {"pg": [[4, 4, 3, 5] * 10] * 2}
MANY, FEW = [[6, 7] * 20] * 2, [[2, 3] * 20] * 2
# Runs of other algorithms, which no verdict depends on.
OTHER_RUNS = {"sft": (1, 1), "dapo": (1, 1), "rapid-H2": (1, 1)}


@pytest.mark.parametrize(
    ("about", "metric", "data", "verdict"),
    [
        ("RAPID faster", "seconds", {"rapid-H4": (10, 11), "pg": (100, 112), **OTHER_RUNS}, HOLDS),
        ("RAPID faster", "seconds", {"rapid-H4": (95, 95.01), "pg": (100, 100)}, HOLDS),
        ("RAPID faster", "seconds", {"rapid-H4": (100, 112), "pg": (10, 11), **OTHER_RUNS}, FAILS),
        ("RAPID faster", "seconds", {"rapid-H4": (10, 20), "pg": (20, 10)}, OPEN),
        ("Saves 11%", "seconds", {"rapid-H4": (10, 11), "pg": (100, 112), **OTHER_RUNS}, HOLDS),
        ("Saves 11%", "seconds", {"rapid-H4": (95, 95.01), "pg": (100, 100)}, FAILS),
        ("Saves 89% of naive", "seconds", {"rapid-H4": (1, 1), "naive-grpo": (9, 9.01)}, HOLDS),
        ("Accuracy kept", "correct", PG_CORRECT | {"rapid-H4": [[7, 6] * 20] * 2}, HOLDS),
        ("Accuracy kept", "correct", PG_CORRECT | {"rapid-H4": [[1, 0] * 20] * 2}, FAILS),
        ("Accuracy kept", "correct", PG_CORRECT | {"rapid-H4": [[8, 0] * 19 + [4, 4]] * 2}, OPEN),
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
def test_verdict_follows_from_known_runs(values, runs, about, metric, data, verdict):
    """Claims compare RAPID (H=4) and PG on MATH (made), unless they say otherwise."""
    values["tables"]["staleness"]["H"] = [2, 4, 8]
    values["tables"]["main"]["algorithms"] += ["rapid-H4,clip=nowhere", "grpo-H4"]
    write_metric(runs, metric, data)
    assert find_claim_row(load(values), runs, about).verdict == verdict


def test_runtimes_on_different_hardware_decide_nothing(params, runs):
    """With H = 4 the runs were on a faster machine than the others."""
    write_metric(runs, "seconds", {"pg": (100, 112), "rapid-H2": (90, 98)})
    for seed, seconds in enumerate((10, 11)):
        runs.write_summary(make_run("rapid-H4", seed), seconds=seconds, hardware="a faster machine")
    for about, reason in (
        ("RAPID faster", "no seed has runs of both on one kind of hardware"),
        ("Runtime falls", "runs on 2 kinds of hardware"),
    ):
        row = find_claim_row(params, runs, about)
        assert (row.verdict, row.value_text, row.reason) == (UNTESTED, "—", reason)


def test_each_saving_is_claimed_on_the_benchmark_of_the_paper(params, runs):
    """The last column has the paper's ratio: 4h14m / 4h49m for RAPID (H=4) on MATH."""
    write_metric(runs, "seconds", {"rapid-H4": (10, 11), "pg": (100, 112)})
    savings = [row for row in claim_rows(params, runs) if "Saves" in row.about]
    naive = {f"Saves 89% of naive {name}": "0.11" for name in ("MBPP+ (made)", "MATH (made)")}
    expected = {"Saves 34% MBPP+ (made)": "0.81", "Saves 11% MATH (made)": "0.88", **naive}
    assert {f"{row.about} {row.place}": row.paper_text for row in savings} == expected


def test_claims_cover_the_models_of_table_2_with_the_papers_figures(values, runs):
    values["tables"]["families"]["algorithms"] = ["pg", "rapid-H4"]
    for seed, seconds in enumerate((10, 11)):
        for name, times in (("rapid-H4", 1), ("pg", 10)):
            run = Run(benchmark="mbpp_plus", model="tiny-llama", algorithm=name, seed=seed)
            runs.write_summary(run, seconds=seconds * times)
    row = find_claim_row(load(values), runs, "RAPID faster", "MBPP+ (made), tiny-llama")
    assert (row.reason, row.value_text) == (claims.TOO_FEW, "0.10")  # Table 2 has one seed
    assert row.paper_text == "0.82"  # 15.2m / 18.5m


def test_accuracy_gained_compares_pass_at_8(params, runs):
    for seed in (0, 1):
        runs.write_scores(make_run("pg", seed, "mbpp_plus"), [0, 1] * 20, ks=(1, 8))
        runs.write_scores(make_run("rapid-H4", seed, "mbpp_plus"), [1, 1] * 20, ks=(1, 8))
    row = find_claim_row(params, runs, "Accuracy gained", "MBPP+ (made) Pass")
    assert (row.verdict, row.place) == (HOLDS, "MBPP+ (made) Pass@8")
    assert row.value_text.startswith("+50.0 [")


def test_dependence_on_h_uses_the_runs_of_table_3(values, runs):
    """Table 1 also has RAPID with another H, and a variant of RAPID."""
    values["tables"]["main"]["algorithms"] += ["rapid-H16", "rapid-H4,eta=1"]
    for seed in (0, 1):
        for name, staleness in (("2", 0.1), ("4", 0.2 + seed), ("16", 9.0), ("4,eta=1", 5.0)):
            runs.write_summary(
                make_run(f"rapid-H{name}", seed), staleness=staleness, clip_fraction=staleness / 40
            )
    data = ReportData.read(load(values), runs.root)
    r = f"{np.corrcoef([2, 2, 4, 4], [0.1, 0.1, 0.2, 1.2])[0, 1]:.3f}"
    rows = claims.build_paper_claims_table(data).rows
    (claim_row,) = (row for row in rows if row.label == "Staleness grows: MATH (made)")
    correlations = results.build_correlations_table(data).rows
    (correlation_row,) = (row for row in correlations if row.label == "MATH (made)")
    cells = claim_row.cells[0][1], correlation_row.cells[0][3]
    assert {cell.text.partition(" ")[0] for cell in cells} == {r}
    assert [len(cell.sources) for cell in cells] == [4, 4]
    assert claim_row.cells[0][3].text == "0.936"  # the paper's
    assert find_claim_row(load(values), runs, "5% clipped").value_text.startswith("1.0%")


def test_interval_of_a_share_is_cut_off_at_0(values, runs):
    values["tables"]["staleness"]["H"] = [2, 4]
    write_metric(runs, "clip_fraction", {"rapid-H2": (0.0, 0.02)})
    row = find_claim_row(load(values), runs, "5% clipped")
    assert row.value_text.startswith("1.0% [0.0%, ")


def test_missing_h_is_replaced_by_the_smallest():
    benchmark_runs = BenchmarkRuns(
        "math", "any", pd.DataFrame(), ["pg", "rapid-H16", "rapid-H2"], MADE_PROBLEMS
    )
    assert claims.select_rapid(benchmark_runs) == "rapid-H2"
    assert claims.select_rapid(benchmark_runs, "rapid-H16") == "rapid-H16"
    assert (
        claims.select_rapid(replace(benchmark_runs, algorithms=["pg"])) == "rapid-H4"
    )  # has no runs


def test_claims_are_not_tested_without_runs(params, runs):
    rows = claim_rows(params, runs)
    assert {row.verdict for row in rows} == {UNTESTED}
    reasons = {row.about: row.reason for row in rows}
    assert all(reasons.values())
    assert reasons["Clipping crucial"].startswith("needs runs without clipping")
    content = contents.build_report(ReportData.read(params, runs.root))
    assert f"0 hold, 0 fail, 0 are open and {len(rows)} are not tested" in content.lead[-1]
    verdicts = [verdict for headline in content.headlines for verdict, _ in headline.counts]
    assert {*verdicts} == {UNTESTED}


def test_headlines_count_the_verdicts_of_all_rows_of_their_claims(params, runs):
    for seed in (0, 1):
        for name, seconds in (("pg", 60), ("naive-grpo", 60), ("rapid-H4", 30), ("rapid-H2", 40)):
            runs.write_summary(make_run(name, seed), seconds=seconds + seed / 10)
    table = claims.build_paper_claims_table(ReportData.read(params, runs.root))
    counts = {headline.text: headline.counts for headline in claims.build_headlines(table)}
    assert counts["RAPID is faster than PG"] == [
        (HOLDS, "1 holds"),
        (UNTESTED, "3 not tested here"),
    ]
    assert counts["It saves 89% of naive GRPO's time"] == [
        (FAILS, "1 fails"), (UNTESTED, "1 not tested here"),
    ]  # fmt: skip
    assert counts["Clipping the weights raises accuracy"] == [(UNTESTED, UNTESTED)]
    assert claims.Headline("", [OPEN, HOLDS, HOLDS]).counts == [(HOLDS, "2 hold"), (OPEN, "1 open")]


def test_every_claim_has_a_row_for_each_benchmark_and_model(params, runs):
    runs.write_all(params)
    only_minif2f = "Saves 32%"  # these parameters lack MiniF2F
    claimed = {claim.about for family in claims.load_claims() for claim in family}
    rows = claim_rows(params, runs)
    assert {row.about for row in rows} == claimed - {only_minif2f}
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
        assert [row.place for row in rows if row.about == about] == places
