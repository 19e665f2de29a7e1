"""Tables 8 and 9: which runs each column compares, and how they are paired."""

from math import exp, prod

import numpy as np
import pytest

from rapid.artifacts.evaluations import ProblemScore
from rapid.config.params import load
from reports import formats
from reports.report_data import ReportData
from reports.statistics import crossed
from reports.statistics.decisions import compute_detectable_difference
from reports.tables import intervals
from tests.reports.conftest import make_run

SEEDS = (0, 1, 2)
# Seconds by seed. PG is not always the fastest baseline. It lacks seed 0, and RAPID (H=4) seed 2.
SECONDS = {
    "mbpp_plus": {
        "pg": {1: 40, 2: 60}, "dapo": {0: 70, 1: 75, 2: 80},
        "rapid-H4": {0: 10, 1: 20}, "rapid-H2": {1: 25, 2: 30},
    },
    "math": {
        "pg": {1: 85, 2: 88}, "dapo": {0: 50, 1: 55, 2: 51},
        "rapid-H4": {0: 10, 1: 60}, "rapid-H2": {1: 25, 2: 30},
    },
}  # fmt: skip
# Correct completions (of 8) of four problems, by seed. PG is not always the most accurate baseline.
CORRECT = {
    "mbpp_plus": {
        "grpo": {0: [1, 1, 8, 8], 1: [1, 1, 8, 0]},
        "pg": {1: [8, 8, 8, 0], 2: [8, 8, 0, 8]},
        "rapid-H4": {0: [0, 0, 0, 0], 1: [8, 4, 0, 0], 2: [8, 0, 0, 0]},
    },
    "math": {
        "grpo": {0: [8, 8, 8, 0], 1: [8, 8, 4, 8]},
        "pg": {1: [4, 4, 4, 4], 2: [4, 4, 0, 4]},
        "rapid-H4": {0: [0, 4, 8, 0], 1: [8, 8, 4, 4], 2: [8, 4, 4, 0]},
    },
}


@pytest.fixture
def table(values, runs):
    values["tables"]["main"]["seeds"] = list(SEEDS)
    for benchmark, algorithms in SECONDS.items():
        for name, seconds in algorithms.items():
            for seed, value in seconds.items():
                runs.write_summary(make_run(name, seed, benchmark), seconds=value)
    for benchmark, algorithms in CORRECT.items():
        for name, correct in algorithms.items():
            for seed, counts in correct.items():
                ks = (1, 8) if benchmark == "mbpp_plus" else (1,)
                runs.write_scores(make_run(name, seed, benchmark), counts, ks=ks)
    return intervals.build_comparisons_table(ReportData.read(load(values), runs.root))


def row_cells(table, label, benchmark):
    (row,) = (row for row in table.rows if row.label == label)
    return row.cells[["mbpp_plus", "math"].index(benchmark)]


@pytest.mark.parametrize("benchmark", ["mbpp_plus", "math"])
@pytest.mark.parametrize("rapid", ["rapid-H4", "rapid-H2"])
def test_runtimes_are_paired_with_pg_by_seed(table, benchmark, rapid):
    """The ratio is a geometric mean over common seeds."""
    cell = row_cells(table, f"H={rapid[-1]}", benchmark)[-1]
    ours, pg = SECONDS[benchmark][rapid], SECONDS[benchmark]["pg"]
    common_seeds = ours.keys() & pg.keys()
    ratio = prod(ours[seed] / pg[seed] for seed in common_seeds) ** (1 / len(common_seeds))
    assert cell.text == formats.ratio(ratio)
    assert cell.detail.startswith(f"RAPID (H={rapid[-1]}) against PG: ")
    assert f"n = {len(common_seeds)} pairs" in cell.detail
    assert any(line.startswith("p =") for line in cell.extra_lines) == (len(common_seeds) > 1)
    assert bool(cell.reason) == (len(common_seeds) == 1)
    assert len(cell.sources) == 2 * len(SEEDS)


def test_accuracies_are_paired_by_problem_and_shown_with_the_papers_figure(table):
    """Both have four problems with seeds 1 and 2. The paper's difference is from its Table 1.

    For Pass@8 of 8 completions, a problem is solved if any completion is correct.
    """
    runtime = row_cells(table, "H=4", "math")[1]
    assert runtime.extra_lines[-1] == "paper: 0.88"  # 4h14m / 4h49m
    for benchmark, paper_difference in (("mbpp_plus", "+3.5"), ("math", "−1.1")):
        rapid, pg = (
            sum(sum(CORRECT[benchmark][name][seed]) for seed in (1, 2))
            for name in ("rapid-H4", "pg")
        )
        cell = row_cells(table, "H=4", benchmark)[0]
        assert cell.text == formats.points((rapid - pg) / 64)
        assert cell.extra_lines[-1] == f"paper: {paper_difference}"
    assert row_cells(table, "H=4", "mbpp_plus")[1].text == formats.points(-3 / 8)


def test_notes_name_the_baseline_and_the_detectable_difference(table):
    """Only Pass@1 of RAPID (H=4) and PG with seeds 1 and 2 has noise to compare with."""
    notes = " ".join(table.notes)
    assert "PG was preregistered as the baseline" in notes
    points = []
    for benchmark in ("mbpp_plus", "math"):
        rapid, pg = (
            np.array([CORRECT[benchmark][name][seed] for seed in (1, 2)])
            for name in ("rapid-H4", "pg")
        )
        points.append(
            100 * compute_detectable_difference(crossed.estimate_mean((rapid - pg) / 8, (-1, 1)))
        )
    detectable_points = f"{points[0]:.1f} points on MBPP+ (made) and {points[1]:.1f} points on MATH (made) (median over H)."
    assert f"would detect in 80 % of cases: {detectable_points}" in notes


def test_significant_comparisons_are_counted_with_and_without_adjustment(values, runs):
    """The t of 173, 3e3, 5.8 and 0.23 have p of 3e-5, 1e-7, 0.03 and 0.8."""
    values["tables"]["main"]["seeds"] = list(SEEDS)
    logarithms = {
        ("mbpp_plus", 4): (1.0, 1.01, 1.02), ("mbpp_plus", 2): (0.7, 1.0, 1.3),
        ("math", 4): (1.0, 1.001, 1.0), ("math", 2): (0.5, -0.5, 0.2),
    }  # fmt: skip
    for (benchmark, h), log_ratios in logarithms.items():
        for seed, value in zip(SEEDS, log_ratios, strict=True):
            runs.write_summary(make_run("pg", seed, benchmark), seconds=60)
            runs.write_summary(make_run(f"rapid-H{h}", seed, benchmark), seconds=60 * exp(value))
    note_start = "Of 4 comparisons, 3 have p ≤ 0.05, and 2 have after Holm's adjustment"
    notes = intervals.build_comparisons_table(ReportData.read(load(values), runs.root)).notes
    assert [note_start in note for note in notes].count(True) == 1


def test_notes_and_cells_name_missing_runs(params, runs):
    table = intervals.build_comparisons_table(ReportData.read(params, runs.root))
    reasons = [cell.reason for cell in row_cells(table, "H=4", "math")]
    assert reasons == [
        "no seed has runs of both with scores by problem",
        "no seed has runs of both on one kind of hardware",
    ]
    assert table.notes[-2:] == [
        "p: for the hypothesis of no difference, not adjusted for the number of comparisons.",
        "The smallest difference that these runs can detect is not known.",
    ]


def test_accuracy_has_an_interval_instead_of_a_deviation(params, runs):
    """DAPO has different problems with each seed, so it has no interval."""
    correct = [[8, 4, 0, 8], [8, 8, 0, 2]]
    for seed, counts in enumerate(correct):
        runs.write_scores(make_run("pg", seed), counts)
        score = ProblemScore(id=f"seed{seed}", samples=8, correct=4 * seed)
        runs.write_scores(make_run("dapo", seed), [4 * seed], scores=[score])
    table = intervals.build_intervals_table(ReportData.read(params, runs.root))
    cells = {row.label: row.cells[1][0] for row in table.rows}
    expected = crossed.estimate_mean(np.array(correct) / 8, (0, 1))
    bounds = ", ".join(map(formats.percent, (expected.low, expected.high)))
    assert (cells["PG"].text, cells["PG"].deviation) == ("59.4%", "")
    assert (cells["PG"].extra_lines, cells["PG"].detail) == (
        (f"[{bounds}]",),
        f"{expected.sample}.",
    )
    dapo, grpo = cells["DAPO"], cells["GRPO"]
    assert (dapo.text, dapo.deviation, dapo.reason) == ("25.0%", "", intervals.NO_SCORES)
    assert grpo.text == "—" and grpo.reason.startswith("not evaluated")


def test_a_cell_without_an_interval_names_missing_runs_too(values, runs):
    """DAPO has different problems with seeds 0 and 1, and no run with seed 2."""
    values["tables"]["main"]["seeds"] = list(SEEDS)
    for seed in (0, 1):
        score = ProblemScore(id=f"seed{seed}", samples=8, correct=4 * seed)
        runs.write_scores(make_run("dapo", seed), [4 * seed], scores=[score])
    table = intervals.build_intervals_table(ReportData.read(load(values), runs.root))
    (reason,) = (row.cells[1][0].reason for row in table.rows if row.label == "DAPO")
    assert reason.startswith("leaves out 1 of 3 runs: not evaluated")
    assert reason.endswith(f"; {intervals.NO_SCORES}")
