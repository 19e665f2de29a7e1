"""Pairs of algorithms: by problem and seed, from the files."""

from functools import partial

import pytest

from rapid.artifacts.evaluations import ProblemScore
from reports.collect import collect
from reports.statistics import pairs
from tests.reports.conftest import make_run

run = partial(make_run, benchmark="mbpp_plus")


def of(params, runs, algorithm):
    frame = collect(params, runs.root)
    here = (frame.benchmark == "mbpp_plus") & (frame.model == "tiny_qwen")
    return frame[here & (frame.algorithm == algorithm)]


def test_a_difference_is_the_mean_over_problems_and_seeds_that_both_have(params, runs):
    runs.write_scores(run("pg", 0), [8, 0, 4])
    runs.write_scores(run("pg", 1), [8, 8, 8])
    runs.write_scores(run("dapo", 0), [0, 0, 4])
    found = pairs.difference(of(params, runs, "pg"), of(params, runs, "dapo"), "pass@1")
    assert (found.value, found.over) == (pytest.approx(1 / 3), "n = 1 seeds and 3 problems")


def test_pairing_takes_out_what_is_common(params, runs):
    """Hard and easy problems, on which both differ by much the same: no doubt that they differ."""
    hard_and_easy = [0, 1, 6, 7] * 5
    runs.write_scores(run("pg"), hard_and_easy)
    runs.write_scores(run("dapo"), [c + 1 for c in hard_and_easy[:-1]] + [7])
    ours, theirs = of(params, runs, "dapo"), of(params, runs, "pg")
    alone = pairs.accuracy(ours, "pass@1")
    paired = pairs.difference(ours, theirs, "pass@1")
    assert alone.low < pairs.accuracy(theirs, "pass@1").high  # they overlap
    assert paired.value == pytest.approx(19 / 20 / 8)
    assert not paired.covers(0)


def test_scores_that_are_all_equal_could_be_others_within_their_bounds(params, runs):
    """Clopper and Pearson's interval: shares of 0 to 1, differences of -1 to 1."""
    for name, correct, seed in (("pg", 8, 0), ("dapo", 0, 0), ("grpo", 0, 0), ("rapid-H4", 0, 1)):
        runs.write_scores(run(name, seed), [correct] * 2)
    right, wrong, other, later = (
        of(params, runs, name) for name in ("pg", "dapo", "grpo", "rapid-H4")
    )
    q = pytest.approx(1 - 0.025**0.5)
    found = pairs.accuracy(right, "pass@1"), pairs.accuracy(wrong, "pass@1")
    assert [(1 - one.low, one.high) for one in found] == [(q, 1), (1, q)]
    same = pairs.difference(wrong, other, "pass@1")
    assert (-same.low, same.high) == (q, q)
    assert pairs.difference(right, later, "pass@1") is None  # no seed has both


def test_pass_at_8_is_whether_any_is_right(params, runs):
    assert pairs.accuracy(of(params, runs, "pg"), "pass@8") is None  # without scores
    runs.write_scores(run("pg"), [1, 0, 8, 0])
    assert pairs.accuracy(of(params, runs, "pg"), "pass@8").value == 0.5


def test_problems_with_too_few_graded_samples_are_not_in_pass_at_k(params, runs):
    """As an evaluation has it: the second problem counts in pass@1 and not in pass@8."""
    of_each = {"a": (8, 4), "b": (7, 7)}
    scores = [ProblemScore(id=id, samples=n, correct=c) for id, (n, c) in of_each.items()]
    reasons = {"passed": 11, "wrong_answer": 4, "infrastructure": 1}
    fields = {"problems": 2, "samples": 8, "scores": scores, "reasons": reasons}
    runs.write_evaluation(run("pg"), pass_at={1: 0.75, 8: 1.0}, **fields)
    estimates = [pairs.accuracy(of(params, runs, "pg"), f"pass@{k}") for k in (1, 8)]
    assert [estimate.value for estimate in estimates] == [0.75, 1.0]
