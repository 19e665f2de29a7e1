"""Accuracy by time of training: between its points, behind its end, and from files."""

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
def test_a_level_is_reached_on_the_line_between_two_points(level, seconds):
    assert CURVE.reaches(level) == (seconds and pytest.approx(seconds))


def test_a_curve_that_falls_is_read_at_its_first_crossing():
    assert AccuracyCurve((0, 10), (0.5, 0.2)).reaches(0.5 + 1e-12) == 0
    assert AccuracyCurve((0, 1, 2, 3), (0.2, 0.6, 0.4, 0.8)).reaches(0.5) == pytest.approx(0.75)


def test_accuracy_behind_the_end_of_a_run_is_that_of_its_end():
    assert CURVE.within(20) == pytest.approx(0.7) and CURVE.within(99) == 0.9
    assert [CURVE.after(n) for n in (16, 96, 999)] == pytest.approx([0.275, 0.7, 0.9])


def test_levels_are_above_the_start_up_to_the_best_of_any_curve():
    other = AccuracyCurve((0, 10, 30), (0.25, 0.3, 0.29))
    assert curves.levels([other]) == pytest.approx([0.3])
    assert curves.levels([AccuracyCurve((0, 5), (0.05, 0.15)), other]) == pytest.approx(
        [0.1, 0.15, 0.2, 0.25, 0.3]
    )
    whole = curves.levels([AccuracyCurve((0, 5), (0, 1))])
    assert whole == pytest.approx([n / 20 for n in range(1, 21)])
    assert curves.levels([]) == []


def test_curves_are_of_algorithms_that_keep_models():
    assert curves.kept(["pg", "pg,snapshots=2"]) == ["pg,snapshots=2"]


def test_a_curve_leads_from_the_common_start_over_its_points_to_the_end_of_its_run(runs):
    """Seed 1 has one step, seed 2 no point, seed 3 no runtime."""
    rows = [(0, 90.0, 16), (1, 90.0, 1), (2, 90.0, 16), (3, math.nan, 16)]
    frame = pd.DataFrame(rows, columns=["seed", "runtime", "optimizer_steps"])
    frame = frame.assign(evaluation=[make_run("pg", seed).evaluation for seed in frame.seed])
    frame = frame.assign(completions=64, **{"pass@1": 0.75, "pass@8": 0.9})
    before = pd.DataFrame({"pass@1": [0.25, 0.5], "pass@8": [0.5, 0.5]})
    points = [(2, 20, {1: 0.5}), (4, 30, {1: 0.6, 8: 0.8})]
    for seed in (0, 1, 3):
        of_run = [CurvePoint(step=n, seconds=s, pass_at=found) for n, s, found in points]
        runs.write_curve(make_run("pg", seed), *of_run)
    found = curves.read(frame, before, "pass@1", runs.root)
    assert found == {
        seed: AccuracyCurve((0, 20, 30, 90), (0.375, 0.5, 0.6, 0.75), completions)
        for seed, completions in ((0, (0, 8, 16, 64)), (1, (0, 128, 256, 64)))
    }
    assert curves.read(frame, before[:0], "pass@1", runs.root) == {}
    with pytest.raises(BadFile, match=r"seed0/curve\.jsonl: a point has no pass@8"):
        curves.read(frame, before, "pass@8", runs.root)
