"""Pairs of algorithms: by problem and seed, from the files."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import ttest_rel

from rapid.artifacts.evaluations import ProblemScore
from rapid.artifacts.files import BadFile
from reports.collect import collect
from reports.measured import Measured
from reports.statistics import pairs
from reports.tables import results
from tests.reports.conftest import run_of

run = partial(run_of, benchmark="mbpp_plus")


def of(params, runs, algorithm):
    frame = collect(params, runs.root)
    here = (frame.benchmark == "mbpp_plus") & (frame.model == "tiny_qwen")
    return frame[here & (frame.algorithm == algorithm)]


def test_a_difference_is_the_mean_over_problems_and_seeds_that_both_have(params, runs):
    runs.scored(run("pg", 0), [8, 0, 4])
    runs.scored(run("pg", 1), [8, 8, 8])
    runs.scored(run("dapo", 0), [0, 0, 4])
    found = pairs.difference(of(params, runs, "pg"), of(params, runs, "dapo"), "pass@1")
    assert (found.value, found.over) == (pytest.approx(1 / 3), "n = 1 seeds and 3 problems")


def test_pairing_takes_out_what_is_common(params, runs):
    """Hard and easy problems, on which both differ by much the same: no doubt that they differ."""
    hard_and_easy = [0, 1, 6, 7] * 5
    runs.scored(run("pg"), hard_and_easy)
    runs.scored(run("dapo"), [c + 1 for c in hard_and_easy[:-1]] + [7])
    ours, theirs = of(params, runs, "dapo"), of(params, runs, "pg")
    alone = pairs.accuracy(ours, "pass@1")
    paired = pairs.difference(ours, theirs, "pass@1")
    assert alone.low < pairs.accuracy(theirs, "pass@1").high  # they overlap
    assert paired.value == pytest.approx(19 / 20 / 8)
    assert not paired.covers(0)


def test_pass_at_8_is_whether_any_is_right(params, runs):
    assert pairs.accuracy(of(params, runs, "pg"), "pass@8") is None  # without scores
    runs.scored(run("pg"), [1, 0, 8, 0])
    assert pairs.accuracy(of(params, runs, "pg"), "pass@8").value == 0.5


def test_runtimes_pair_by_seed_and_not_by_position(params, runs):
    for seed, ours, theirs in ((0, 10, 40), (1, 30, 60)):
        runs.summary(run("rapid-H2", seed), seconds=ours)
        runs.summary(run("pg", seed), seconds=theirs)
    shuffled = of(params, runs, "pg").iloc[::-1]
    found = pairs.ratio(of(params, runs, "rapid-H2"), shuffled, "runtime")
    assert found.value == pytest.approx((10 / 40 * 30 / 60) ** 0.5)


def test_problems_with_too_few_graded_samples_are_not_in_pass_at_k(params, runs):
    """As `rapid.stages.evaluate` writes it: the second problem counts in pass@1 and not in pass@8."""
    of_each = {"a": (8, 4), "b": (7, 7)}
    scores = [ProblemScore(id=id, samples=n, correct=c) for id, (n, c) in of_each.items()]
    reasons = {"passed": 11, "wrong_answer": 4, "infrastructure": 1}
    fields = {"problems": 2, "samples": 8, "scores": scores, "reasons": reasons}
    path = runs.evaluation(run("pg"), pass_at={1: 0.75, 8: 1.0}, **fields)
    collect(params, runs.root)
    runs.edit(path, lambda document: document["pass_at"].update({"8": 0.5}))
    with pytest.raises(BadFile, match=r"0\.5 at k = 8, but its scores give 1\.0"):
        collect(params, runs.root)


def marked(params, runs, column):
    table = results.main(Measured.read(params, runs.root))
    c = table.groups[0].columns.index(column)
    return {row.label: row.cells[0][c] for row in table.rows}


def test_what_is_within_noise_of_the_best_is_marked(params, runs):
    runs.scored(run("pg"), [5] * 20)
    runs.scored(run("dapo"), [5, 4] * 9 + [4, 6])  # best by less than noise, and beaten often
    runs.scored(run("grpo"), [0] * 10 + [1] * 10)
    cells = marked(params, runs, "Pass@1")
    assert (cells["PG"].mark, cells["PG"].tied) == ("best", False)
    assert (cells["DAPO"].mark, cells["DAPO"].tied) == ("runner-up", False)
    runs.scored(run("dapo"), [8, 1] * 10)
    cells = marked(params, runs, "Pass@1")
    assert cells["DAPO"].tied and not cells["GRPO"].tied


def test_runtimes_within_noise_are_those_of_the_t_test(params, runs):
    seconds = {"pg": (10.0, 11.0), "dapo": (12.0, 19.0), "grpo": (100.0, 111.0)}
    for name, pair in seconds.items():
        for seed, value in enumerate(pair):
            runs.summary(run(name, seed), seconds=value)
    cells = marked(params, runs, "Runtime")
    for name, tied in (("dapo", True), ("grpo", False)):
        p = ttest_rel(np.log(seconds[name]), np.log(seconds["pg"])).pvalue
        assert cells[name.upper()].tied == (p >= 0.05) == tied


def test_one_seed_says_nothing_of_a_runtimes_noise(params, runs):
    runs.summary(run("pg"), seconds=10)
    runs.summary(run("dapo"), seconds=10.1)
    assert not any(cell.tied for cell in marked(params, runs, "Runtime").values())
