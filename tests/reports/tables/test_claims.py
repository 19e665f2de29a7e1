"""The paper's claims: what decides them, on runs made so that the answer is known."""

import pytest
from scipy import stats

from rapid.config.specs import Run
from reports import contents
from reports.measured import Measured
from reports.statistics.estimates import Estimate
from reports.tables import claims, versus_paper
from reports.tables.claims import FAILS, HOLDS, UNTESTED


def run(algorithm, seed=0, benchmark="math"):
    return Run(benchmark=benchmark, model="tiny_qwen", algorithm=algorithm, seed=seed)


class Finding:
    """A row of the table of claims."""

    def __init__(self, row):
        self.about, _, self.where = row.label.partition(": ")
        verdict, here, _ = row.cells[0]
        self.verdict, self.here, self.reason = verdict.text, here.text, here.reason


def findings(params, runs):
    return [Finding(row) for row in claims.table(Measured.read(params, runs.root)).rows]


def found(params, runs, about, where="MATH"):
    every = findings(params, runs)
    (one,) = (f for f in every if f.about == about and f.where.startswith(where))
    return one


def timed(runs, seconds: dict[str, tuple[float, float]], **fields):
    for name, pair in seconds.items():
        for seed, value in enumerate(pair):
            runs.summary(run(name, seed), seconds=value, **fields)


@pytest.mark.parametrize(
    ("low", "high", "limits", "verdict"),
    [
        (0.1, 0.2, {"above": 0}, HOLDS),
        (-0.2, -0.1, {"above": 0}, FAILS),
        (-0.1, 0.1, {"above": 0}, UNTESTED),
        (0.5, 0.9, {"below": 1}, HOLDS),
        (1.1, 1.2, {"below": 1}, FAILS),
        (0.9, 1.1, {"below": 1}, UNTESTED),
        (0.5, 0.9, {"above": 0, "below": 1}, HOLDS),
        (None, None, {"below": 1}, UNTESTED),
    ],
)
def test_a_verdict_is_the_side_that_the_interval_is_on(low, high, limits, verdict):
    assert claims.decide(Estimate(0.5, low, high), **limits)[0] == verdict


INFINITE = float("inf")


def test_the_limits_are_the_papers_figures():
    limits = {claim.about: (claim.above, claim.below) for claim in claims.claims()}
    expected = {
        "RAPID fastest": (-INFINITE, 1.0),
        "Saves 11%": (-INFINITE, 0.89),
        "Saves 89% of naive": (-INFINITE, 0.115),  # 11 %, as printed
        "Accuracy kept": (-0.011, INFINITE),
        "Staleness grows": (0, INFINITE),
        "Runtime falls": (-INFINITE, 0),
        "5% clipped": (0.025, 0.1),
    }
    assert limits.keys() == expected.keys()
    for about, limit in expected.items():
        assert limits[about] == pytest.approx(limit), about


@pytest.mark.parametrize("edge", [-0.5, 0.0, 1.0])
def test_an_interval_that_ends_at_the_limit_is_on_the_other_side(edge):
    below, above = Estimate(0, edge - 1, edge), Estimate(0, edge, edge + 1)
    assert claims.decide(above, above=edge)[0] == UNTESTED
    assert claims.decide(below, below=edge)[0] == UNTESTED
    assert claims.decide(below, above=edge)[0] == FAILS
    assert claims.decide(above, below=edge)[0] == FAILS


def test_the_papers_own_deficit_is_the_margin():
    assert claims.margin() == pytest.approx(0.306 - 0.295)  # MATH: PG and RAPID (H=4)


@pytest.mark.parametrize(
    ("rapid", "pg", "verdict"),
    [
        ((10, 11), (100, 112), HOLDS),
        ((100, 112), (10, 11), FAILS),
        ((10, 20), (20, 10), UNTESTED),
    ],
)
def test_fastest(params, runs, rapid, pg, verdict):
    timed(runs, {"rapid-H2": rapid, "pg": pg, "sft": (1, 1)})  # sft takes no part
    assert found(params, runs, "RAPID fastest").verdict == verdict


def test_the_slowest_rapid_does_not_decide(params, runs):
    timed(runs, {"rapid-H2": (10, 11), "rapid-H4": (900, 900), "pg": (100, 112)})
    one = found(params, runs, "RAPID fastest")
    assert one.verdict == HOLDS
    assert one.here.startswith("0.10 [")


def test_a_small_saving_is_faster_and_not_11_percent(params, runs):
    timed(runs, {"rapid-H2": (95, 95.01), "pg": (100, 100)})
    assert found(params, runs, "RAPID fastest").verdict == HOLDS
    assert found(params, runs, "Saves 11%").verdict == FAILS


@pytest.mark.parametrize(
    ("correct", "verdict"),
    [([7, 6] * 20, HOLDS), ([1, 0] * 20, FAILS), ([8, 0] * 19 + [4, 4], UNTESTED)],
)
def test_accuracy_kept(params, runs, correct, verdict):
    timed(runs, {"rapid-H2": (10, 11), "pg": (100, 112)})
    for seed in (0, 1):
        runs.scored(run("pg", seed), [4, 4, 3, 5] * 10)
        runs.scored(run("rapid-H2", seed), correct)
    assert found(params, runs, "Accuracy kept").verdict == verdict


def test_the_accuracy_is_that_of_the_fastest_rapid(params, runs):
    """A slow RAPID that is accurate does not help."""
    timed(runs, {"rapid-H2": (10, 11), "rapid-H4": (50, 51), "pg": (100, 112)})
    for seed in (0, 1):
        runs.scored(run("pg", seed), [4, 3] * 20)
        runs.scored(run("rapid-H2", seed), [0, 1] * 20)
        runs.scored(run("rapid-H4", seed), [8, 8] * 20)
    assert found(params, runs, "Accuracy kept").verdict == FAILS


def test_staleness_and_runtime_by_h(params, runs):
    for h, seed, stale, seconds in (
        (2, 0, 0.10, 50), (2, 1, 0.101, 51), (4, 0, 0.20, 60), (4, 1, 0.201, 61),
    ):  # fmt: skip
        runs.summary(run(f"rapid-H{h}", seed), seconds=seconds, staleness=stale)
    assert found(params, runs, "Staleness grows").verdict == HOLDS
    assert found(params, runs, "Runtime falls").verdict == FAILS


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [((0.05, 0.052), HOLDS), ((0.001, 0.002), FAILS), ((0.3, 0.31), FAILS), ((0, 0.1), UNTESTED)],
)
def test_clipped(params, runs, shares, verdict):
    for seed, share in enumerate(shares):
        runs.summary(run("rapid-H2", seed), clip_fraction=share)
    assert found(params, runs, "5% clipped").verdict == verdict


def test_without_runs_nothing_is_tested(params, runs):
    every = findings(params, runs)
    assert {one.verdict for one in every} == {UNTESTED}
    assert all(one.reason for one in every)
    content = contents.build_report(Measured.read(params, runs.root))
    assert "0 hold, 0 do not hold" in content.lead


def test_every_claim_has_a_rule(params, runs):
    runs.all(params)
    every = findings(params, runs)
    assert {one.about for one in every} == {claim.about for claim in claims.claims()}


def test_places_and_kendalls_tau_by_hand(params, runs):
    # The paper's order on MATH by time: RAPID (H=4) 4h14, DAPO 4h47, PG 4h49, GRPO 5h36.
    timed(runs, {"grpo": (1, 1), "rapid-H4": (2, 2), "dapo": (3, 3), "pg": (4, 4)})
    table = versus_paper.orders(Measured.read(params, runs.root))
    cells = {row.label: row.cells[1][-1].text for row in table.rows}
    assert [cells[n] for n in ("RAPID (H=4)", "DAPO", "PG", "GRPO")] == [
        "1 / 2", "2 / 3", "3 / 4", "4 / 1",
    ]  # fmt: skip
    tau = stats.kendalltau([1, 2, 3, 4], [2, 3, 4, 1]).statistic  # 3 of 6 pairs agree
    assert tau == 0
    assert cells["Kendall's tau"] == "0.000"
