"""Intervals over seeds and problems, against independent analyses of variance."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from reports.statistics.crossed import estimate_mean, merge_clusters

SHARES, DIFFERENCES = (0, 1), (-1, 1)


def exact_variance_and_df(matrix: np.ndarray) -> tuple[Fraction, Fraction]:
    """Return the variance of the mean and its degrees of freedom, in fractions.

    Of equal mean squares the one with the fewest degrees of freedom counts.
    """
    cells = [[Fraction(value) for value in row] for row in matrix.tolist()]
    rows, columns = len(cells), len(cells[0])
    squared_mean = sum(map(sum, cells)) ** 2 / (rows * columns)
    by_row = sum(sum(row) ** 2 for row in cells) / columns - squared_mean
    by_column = sum(sum(column) ** 2 for column in zip(*cells, strict=True)) / rows - squared_mean
    residual = sum(value**2 for row in cells for value in row) - squared_mean - by_row - by_column
    dfs = [rows - 1, columns - 1, (rows - 1) * (columns - 1)]
    seeds, problems, interaction = (
        total / n if n else Fraction(0)
        for total, n in zip((by_row, by_column, residual), dfs, strict=True)
    )
    variance = max(seeds, problems, interaction)
    mean_squares = [*zip((seeds, problems, interaction), dfs, strict=True)]
    df = Fraction(min(n for mean_square, n in mean_squares if mean_square == variance))
    if (total := seeds + problems - interaction) > variance:
        variance = total
        df = variance**2 / sum(mean_square**2 / n for mean_square, n in mean_squares if n)
    return variance / (rows * columns), df


def make_score_matrices() -> list[np.ndarray]:
    """Return score matrices of many shapes, mostly in eighths, as eight completions give them."""
    chance, matrices = np.random.default_rng(5), []
    for shape in itertools.product((1, 2, 3, 5, 20), (1, 2, 3, 40)):
        for share in (0.02, 0.1, 0.5, 1.0):  # of cells that may differ from 1
            cells = np.where(chance.random(shape) < share, chance.integers(0, 9, shape), 8) / 8
            matrices += [cells, cells - np.roll(cells, 1, axis=1)]
        rows, columns = chance.integers(0, 9, (shape[0], 1)), chance.integers(0, 9, shape[1])
        matrices += [rows + columns / 8, np.broadcast_to(rows / 8, shape), columns / 8 + 0.1 * rows]
    return [matrix for matrix in matrices if np.ptp(matrix)]


@pytest.mark.parametrize("orient", [np.asarray, np.transpose])
def test_one_seed_or_one_problem_gives_a_t_test_over_the_other_axis(orient):
    values = np.random.default_rng(1).random((1, 9))
    result = estimate_mean(orient(values), SHARES)
    test = stats.ttest_1samp(values[0], 0.3)
    low, high = test.confidence_interval(0.95)
    assert (result.low, result.high) == (pytest.approx(low), pytest.approx(high))
    assert result.p_at(0.3) == pytest.approx(test.pvalue)


def test_equal_means_of_noisy_scores_give_a_wide_interval():
    result = estimate_mean(np.array([[1.0, 0.0], [0.0, 1.0]]), SHARES)
    assert (result.low, result.high) == (0, 1)


@pytest.mark.parametrize(
    ("value", "bounds", "low", "high"),
    [
        (1.0, SHARES, 0.025 ** (1 / 40), 1.0),
        (0.0, SHARES, 0.0, 1 - 0.025 ** (1 / 40)),
        (0.0, DIFFERENCES, 0.025 ** (1 / 40) - 1, 1 - 0.025 ** (1 / 40)),
        (-1.0, DIFFERENCES, -1.0, 1 - 2 * 0.025 ** (1 / 40)),
    ],
)
def test_scores_that_are_all_equal_get_clopper_and_pearsons_interval(value, bounds, low, high):
    result = estimate_mean(np.full((3, 40), value), bounds)
    assert (result.low, result.high) == (pytest.approx(low), pytest.approx(high))
    for end in (low, value, high):
        assert result.p_at(end) == pytest.approx(1.0 if end == value else 0.05)
    assert (result.p_at((low + 99 * value) / 100), result.p_at(2)) == (1, 0)
    interval = stats.binomtest(40, 40).proportion_ci(0.95)
    assert pytest.approx(interval.low) == 0.025 ** (1 / 40)


def test_p_is_5_percent_at_the_ends_of_the_interval():
    result = estimate_mean(np.random.default_rng(2).normal(0.1, 0.4, (3, 40)), DIFFERENCES)
    assert [result.p_at(end) for end in (result.low, result.high)] == pytest.approx([0.05, 0.05])


@pytest.mark.parametrize("shape", [(2, 40), (3, 40), (3, 41), (7, 11), (20, 500), (2, 2)])
@pytest.mark.parametrize("deviation", [1.0, -1.0, 0.1, 1 / 3, 7 / 8])
def test_one_deviating_cell_gives_the_same_interval_wherever_it_is(shape, deviation):
    """All three mean squares are then equal, except for rounding."""
    cells = np.ndindex(shape) if shape[1] < 100 else [(0, 0), (3, 71), (19, 499), (11, 250)]
    results = []
    for cell in cells:
        matrix = np.full(shape, 0.3)
        matrix[cell] += deviation
        result = estimate_mean(matrix, (-2, 2))
        results.append(
            (result.value, result.error, result.df, result.low, result.high, result.p_at(0.25))
        )
    assert [result[2] for result in results] == [shape[0] - 1] * len(results)
    np.testing.assert_allclose(results, [results[0]] * len(results), rtol=1e-9)
    assert results[0][1] == pytest.approx(abs(deviation) / np.prod(shape))


def test_order_of_seeds_and_problems_does_not_matter():
    chance = np.random.default_rng(6)
    for matrix in make_score_matrices():
        ordered = estimate_mean(matrix, (-20, 20))
        for _ in range(4):
            rows, columns = map(chance.permutation, map(range, matrix.shape))
            shuffled = estimate_mean(matrix[np.ix_(rows, columns)], (-20, 20))
            assert (shuffled.low, shuffled.high, shuffled.df, shuffled.p_at(0.3)) == pytest.approx(
                (ordered.low, ordered.high, ordered.df, ordered.p_at(0.3)), rel=1e-7, abs=1e-9
            )


def test_intervals_equal_those_computed_in_fractions():
    for matrix in make_score_matrices():
        variance, df = exact_variance_and_df(matrix)
        result = estimate_mean(matrix, (-20, 20))
        assert (result.error, result.df) == pytest.approx((float(variance) ** 0.5, float(df)))
        half_width = stats.t.isf(0.025, float(df)) * float(variance) ** 0.5
        assert result.high == pytest.approx(min(20.0, matrix.mean() + half_width))


def test_equal_mean_squares_get_the_fewest_degrees_of_freedom():
    matrix = np.ones((3, 40))
    matrix[1, 7] = 0  # Pass@8 of three runs, one of which solves all problems but one
    result = estimate_mean(matrix, SHARES)
    assert (result.df, result.low, result.high) == (2, pytest.approx(0.9558, abs=5e-5), 1)


def test_clusters_of_one_problem_change_nothing():
    matrix = np.random.default_rng(8).random((5, 12))
    clusters = list("lkjihgfedcba")
    plain, clustered = (
        estimate_mean(m, SHARES) for m in (matrix, merge_clusters(matrix, clusters))
    )
    assert (clustered.value, clustered.error, clustered.df) == pytest.approx(
        (plain.value, plain.error, plain.df)
    )


def test_copies_of_problems_in_one_cluster_add_no_information():
    matrix = np.random.default_rng(9).random((5, 12))
    copied = np.repeat(matrix, 3, axis=1)
    plain = estimate_mean(matrix, SHARES)
    clustered = estimate_mean(merge_clusters(copied, np.repeat(np.arange(12), 3)), SHARES)
    assert (clustered.error, clustered.df) == pytest.approx((plain.error, plain.df))
    assert estimate_mean(copied, SHARES).error < plain.error


def test_clusters_of_many_sizes_have_the_variance_of_sums_by_hand():
    """With equal seeds only problems vary: Cochran's variance of a mean of unequal clusters."""
    chance = np.random.default_rng(10)
    clusters = np.array(list("aaaabbbccd"))
    scores = chance.random(10)
    result = estimate_mean(merge_clusters(np.tile(scores, (6, 1)), clusters), SHARES)
    sums = [(scores[clusters == name] - scores.mean()).sum() for name in "abcd"]
    variance = 4 / 3 * sum(total**2 for total in sums) / 10**2
    assert result.value == pytest.approx(scores.mean())
    assert (result.error, result.df) == pytest.approx((variance**0.5, 3))


def test_clusters_keep_the_means_of_seeds():
    matrix = np.random.default_rng(11).random((4, 10))
    clustered = merge_clusters(matrix, list("aaaabbbccd"))
    assert clustered.shape == (4, 4)
    assert clustered.mean(axis=1) == pytest.approx(matrix.mean(axis=1))
