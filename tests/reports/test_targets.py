"""Target accuracies, and the noise of an evaluation, against values by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from reports.targets import MAX_CHANCE, compute_sampling_error, compute_target
from tests.arena_records import list_targets_reached_by_chance

PG_RUNS = pd.DataFrame({"pass@1": [0.6, 0.8], "scores": [{}, {}]})


@pytest.mark.parametrize(("gain_share", "computed"), [(0.75, 0.60), (0.5, 0.50)])
def test_target_is_the_start_and_a_share_of_the_gain(gain_share, computed):
    untrained = pd.DataFrame({"pass@1": [0.28, 0.30, 0.32], "scores": [{}] * 3})
    target = compute_target(untrained, PG_RUNS, "pass@1", gain_share, 0.32, [1] * 4)
    assert (target.start, target.noise, target.computed) == pytest.approx((0.30, 0.02, computed))
    assert target.chance_of_computed == pytest.approx(0, abs=1e-12)
    assert target.chance_of_used == pytest.approx(1 - 0.841345**4, abs=1e-5)


def test_snapshots_with_fewer_completions_are_more_often_above_a_target_by_chance():
    """With a quarter of the completions the noise is twice as large: 0.04 in place of 0.02."""
    untrained = pd.DataFrame({"pass@1": [0.28, 0.30, 0.32], "scores": [{}] * 3})
    target = compute_target(untrained, PG_RUNS, "pass@1", 0.75, 0.32, [2, 2, 8])
    assert target.chance_of_used == pytest.approx(1 - 0.691462**2 * 0.841345, abs=1e-5)


def test_noise_of_a_single_evaluation_is_the_sampling_error():
    """Shares of 2 / 4 and 1 / 4 have variances of 2 x 2 / (16 x 3) and 1 x 3 / (16 x 3)."""
    scores = {"a": (4, 2), "b": (4, 1), "c": (4, 0)}
    untrained = pd.DataFrame({"pass@1": [0.25], "scores": [scores]})
    noise = compute_target(untrained, PG_RUNS, "pass@1", 0.75, None, [4]).noise
    assert noise == pytest.approx(math.sqrt(4 / 48 + 3 / 48) / 3)


def test_sampling_error_is_that_of_repeated_evaluations():
    chance = np.random.default_rng(0)
    solved = np.array([0.1, 0.5, 0.9, 0.7])
    counts = chance.binomial(8, solved, (4000, 4))
    estimates = [compute_sampling_error({n: (8, c) for n, c in enumerate(row)}) for row in counts]
    spread = (counts / 8).mean(axis=1).std()
    assert math.sqrt(np.mean(np.square(estimates))) == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("scores", [{}, {"a": (1, 1)}])
def test_one_completion_per_problem_has_no_sampling_error(scores):
    assert math.isnan(compute_sampling_error(scores))


@pytest.mark.parametrize(
    ("snapshots", "gain_share", "is_reached"),
    [(0, 0.4, True), (0, 0.5, False), (1, 0.9, True), (1, 1.0, False)],
)
def test_recomputation_finds_the_same_targets_to_be_reached_by_chance(
    snapshots, gain_share, is_reached
):
    """The noise is 0.127 with four completions, and 0.255 in a snapshot with one.

    PG gains 0.45. Without a snapshot, the target is 1.41 or 1.77 standard deviations above the
    start. With one, it is 1.59 or 1.77 standard deviations of the snapshot. 1.645 is the limit.
    """
    counts = {"a": (4, 2), "b": (4, 1), "c": (4, 0)}
    untrained = pd.DataFrame({"pass@1": [0.25], "scores": [counts]})
    samples = [1] * snapshots + [4]
    target = compute_target(untrained, PG_RUNS, "pass@1", gain_share, None, samples)
    rows = [{"samples": n, "correct": c} for n, c in counts.values()]
    runs = {
        ("math", "base"): {1: _make_run(0.25, rows)},
        ("math", f"pg,problems=8,learning_rate=0.1,snapshots={snapshots}"): {
            seed: _make_run(accuracy) for seed, accuracy in enumerate(PG_RUNS["pass@1"])
        },
    }
    field = {
        "problems": 8,
        "snapshots": snapshots,
        "rates": {"pg": 0.1},
        "gain_share": gain_share,
    }
    evaluation = {"samples": 4, "snapshot_samples": 1}
    benchmarks = list_targets_reached_by_chance(runs, {"math": field}, evaluation)
    assert (target.chance_of_computed > MAX_CHANCE) == bool(benchmarks) == is_reached


def _make_run(accuracy, rows=()):
    return SimpleNamespace(evaluation={"pass_at": {"1": accuracy}, "scores": rows})
