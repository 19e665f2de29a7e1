"""A mean over blocks, against least squares and simulated runs."""

import numpy as np
import pytest
from scipy import stats

from reports.statistics import blocks, crossed

BOUNDS = (-1, 1)


def test_interval_over_seeds_is_that_of_an_intercept_beside_an_effect_of_the_block():
    chance = np.random.default_rng(0)
    of_runs = [chance.normal(shift, 0.1, 20) for shift in (0.02, 0.05)]
    design = np.column_stack([np.ones(40), np.repeat([-0.5, 0.5], 20)])
    values = np.concatenate(of_runs)
    coefficients, (squares,), *_ = np.linalg.lstsq(design, values, rcond=None)
    error = (squares / 38 * np.linalg.inv(design.T @ design)[0, 0]) ** 0.5
    result = blocks.estimate_mean(of_runs, None, BOUNDS)
    assert (result.value, result.error, result.df) == pytest.approx((coefficients[0], error, 38))
    assert result.high == pytest.approx(coefficients[0] + stats.t.isf(0.025, 38) * error)


def test_a_difference_between_the_blocks_adds_no_error():
    differences = np.random.default_rng(1).normal(0, 0.1, 20)
    together = blocks.estimate_mean([differences, differences], None, BOUNDS)
    apart = blocks.estimate_mean([differences - 0.3, differences + 0.3], None, BOUNDS)
    assert (apart.value, apart.error) == pytest.approx((together.value, together.error))


def test_one_block_with_scores_has_the_variance_of_crossed_factors():
    chance = np.random.default_rng(2)
    scores = chance.normal(0, 0.3, (20, 1)) + chance.normal(0, 0.3, (20, 30))
    scores += np.linspace(-0.2, 0.2, 30)
    expected = crossed.estimate_mean(scores, (-9, 9))
    result = blocks.estimate_mean([scores.mean(axis=1)], scores, (-9, 9))
    assert (result.error, result.df) == pytest.approx((expected.error, expected.df))


def test_problems_that_all_differ_alike_add_no_error():
    """The mean square of problems is then below that of residuals."""
    signs = np.where(np.arange(20)[:, None] % 2 == np.arange(30) % 2, 0.1, -0.1)
    of_runs = [np.random.default_rng(4).normal(0, 0.1, 20) for _ in range(2)]
    results = [blocks.estimate_mean(of_runs, scored, BOUNDS) for scored in (signs, None)]
    assert results[0].error == results[1].error and results[0].df == results[1].df == 38


def test_error_is_the_deviation_of_simulated_means():
    """Both blocks have the same problems, whose effects do not average out."""
    chance, means, variances = np.random.default_rng(5), [], []
    for _ in range(400):
        problems = chance.normal(0, 0.2, 50)
        runs = [
            problems + chance.normal(0, 0.05, (10, 1)) + chance.normal(0, 0.3, (10, 50))
            for _ in range(2)
        ]
        result = blocks.estimate_mean([run.mean(axis=1) for run in runs], runs[-1], (-9, 9))
        means.append(result.value)
        variances.append(result.error**2)
    expected = 0.2**2 / 50 + 0.05**2 / 20 + 0.3**2 / 1000
    assert np.mean(variances) == pytest.approx(expected, rel=0.1)
    assert np.var(means) == pytest.approx(expected, rel=0.3)


def test_equal_differences_get_clopper_and_pearsons_interval():
    result = blocks.estimate_mean([np.zeros(20), np.zeros(20)], None, BOUNDS)
    assert (result.low, result.high) == (
        pytest.approx(0.025 ** (1 / 40) - 1),
        pytest.approx(1 - 0.025 ** (1 / 40)),
    )


def test_blocks_of_one_seed_have_a_mean_without_an_interval():
    estimate = blocks.estimate_mean([np.array([0.1]), np.array([0.3])], None, (-1.0, 1.0))
    assert estimate.value == pytest.approx(0.2)
    assert (estimate.low, estimate.high, estimate.p_at) == (None, None, None)
