"""Accuracy curves over training time: between points, after the end, and read from files."""

import math

import pandas as pd
import pytest

from rapid.artifacts.evaluations import CurvePoint
from rapid.artifacts.files import BadFile
from reports.statistics import curves
from reports.statistics.curves import AccuracyCurve
from tests.reports.conftest import make_run

CURVE = AccuracyCurve((0, 10, 30), (0.2, 0.5, 0.9), (0, 64, 128))


@pytest.mark.parametrize(
    ("level", "seconds"),
    [(0.1, 0), (0.2, 0), (0.35, 5), (0.5, 10), (0.8, 25), (0.9, 30), (0.9 + 1e-12, 30), (1, None)],
)
def test_time_to_a_level_is_interpolated_between_points(level, seconds):
    assert CURVE.seconds_to_reach(level) == (seconds and pytest.approx(seconds))


def test_falling_curve_reaches_a_level_at_its_first_crossing():
    assert AccuracyCurve((0, 10), (0.5, 0.2)).seconds_to_reach(0.5 + 1e-12) == 0
    assert AccuracyCurve((0, 1, 2, 3), (0.2, 0.6, 0.4, 0.8)).seconds_to_reach(0.5) == pytest.approx(
        0.75
    )


def test_accuracy_after_the_end_of_a_run_is_its_last_accuracy():
    assert CURVE.accuracy_at(20) == pytest.approx(0.7) and CURVE.accuracy_at(99) == 0.9
    assert [CURVE.accuracy_after(n) for n in (16, 96, 999)] == pytest.approx([0.275, 0.7, 0.9])


def test_chance_to_reach_a_level_is_that_of_the_highest_evaluation():
    start, noises = 0.30, [0.02] * 4
    assert curves.compute_chance_to_reach(0.30, start, noises[:1]) == pytest.approx(0.5)
    assert curves.compute_chance_to_reach(0.30, start, noises) == pytest.approx(1 - 0.5**4)
    assert curves.compute_chance_to_reach(0.32, start, noises) == pytest.approx(
        1 - 0.841345**4, abs=1e-5
    )
    assert curves.compute_chance_to_reach(0.32, start, [0.02, 0.04]) == pytest.approx(
        1 - 0.841345 * 0.691462, abs=1e-5
    )
    assert math.isnan(curves.compute_chance_to_reach(0.32, start, [math.nan]))
    assert curves.compute_chance_to_reach(0.30, start, [0.0] * 4) == 1
    assert curves.compute_chance_to_reach(0.31, start, [0.0] * 4) == 0


def test_levels_lie_above_the_start_and_up_to_the_best_curve():
    curve = AccuracyCurve((0, 10, 30), (0.25, 0.3, 0.29))
    assert curves.choose_levels([curve]) == pytest.approx([0.3])
    assert curves.choose_levels([AccuracyCurve((0, 5), (0.05, 0.15)), curve]) == pytest.approx(
        [0.1, 0.15, 0.2, 0.25, 0.3]
    )
    full_range = curves.choose_levels([AccuracyCurve((0, 5), (0, 1))])
    assert full_range == pytest.approx([n / 20 for n in range(1, 21)])
    assert curves.choose_levels([]) == []


def test_only_algorithms_with_snapshots_have_curves():
    assert curves.select_with_snapshots(["pg", "pg,snapshots=2"]) == ["pg,snapshots=2"]


def test_curve_has_the_start_the_snapshots_and_the_end_of_a_run(runs):
    """Seed 1 has one step, seed 2 has no point, and seed 3 has no runtime."""
    rows = [(0, 90.0, 16), (1, 90.0, 1), (2, 90.0, 16), (3, math.nan, 16)]
    frame = pd.DataFrame(rows, columns=["seed", "runtime", "optimizer_steps"])
    frame = frame.assign(evaluation=[make_run("pg", seed).evaluation for seed in frame.seed])
    frame = frame.assign(completions=64, **{"pass@1": 0.75, "pass@8": 0.9})
    before = pd.DataFrame({"pass@1": [0.25, 0.5], "pass@8": [0.5, 0.5]})
    points = [(2, 20, {1: 0.5}), (4, 30, {1: 0.6, 8: 0.8})]
    for seed in (0, 1, 3):
        curve_points = [CurvePoint(step=n, seconds=s, pass_at=pass_at) for n, s, pass_at in points]
        runs.write_curve(make_run("pg", seed), *curve_points)
    curves_by_seed = curves.read_curves(frame, before, "pass@1", runs.root)
    assert curves_by_seed == {
        seed: AccuracyCurve((0, 20, 30, 90), (0.375, 0.5, 0.6, 0.75), completions)
        for seed, completions in ((0, (0, 8, 16, 64)), (1, (0, 128, 256, 64)))
    }
    assert curves.read_curves(frame, before[:0], "pass@1", runs.root) == {}
    with pytest.raises(BadFile, match=r"seed0/curve\.jsonl: a point has no pass@8"):
        curves.read_curves(frame, before, "pass@8", runs.root)
