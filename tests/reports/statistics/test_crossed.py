"""Intervals over seeds and problems, against analyses of variance worked out otherwise."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from reports.statistics.crossed import estimate

SHARES, DIFFERENCES = (0, 1), (-1, 1)


def exact(matrix: np.ndarray) -> tuple[Fraction, Fraction]:
    """Return the variance of the mean and its degrees of freedom, from totals, without rounding.

    Ties are exact here. They go to the fewest degrees of freedom.
    """
    cells = [[Fraction(value) for value in row] for row in matrix.tolist()]
    rows, columns = len(cells), len(cells[0])
    whole = sum(map(sum, cells)) ** 2 / (rows * columns)
    by_row = sum(sum(row) ** 2 for row in cells) / columns - whole
    by_column = sum(sum(column) ** 2 for column in zip(*cells, strict=True)) / rows - whole
    rest = sum(value**2 for row in cells for value in row) - whole - by_row - by_column
    free = [rows - 1, columns - 1, (rows - 1) * (columns - 1)]
    seeds, problems, within = (
        total / n if n else Fraction(0)
        for total, n in zip((by_row, by_column, rest), free, strict=True)
    )
    variance = max(seeds, problems, within)
    df = Fraction(
        min(n for n, it in zip(free, (seeds, problems, within), strict=True) if it == variance)
    )
    if (sum_of := seeds + problems - within) > variance:
        variance = sum_of
        squares = zip((seeds, problems, within), free, strict=True)
        df = variance**2 / sum(it**2 / n for it, n in squares if n)
    return variance / (rows * columns), df


def grids() -> list[np.ndarray]:
    """Matrices of eighths, as of eight completions a problem, of many kinds and shapes."""
    chance, found = np.random.default_rng(5), []
    for shape in itertools.product((1, 2, 3, 5, 20), (1, 2, 3, 40)):
        for share in (0.02, 0.1, 0.5, 1.0):  # of cells that may differ from the others
            cells = np.where(chance.random(shape) < share, chance.integers(0, 9, shape), 8) / 8
            found += [cells, cells - np.roll(cells, 1, axis=1)]
        rows, columns = chance.integers(0, 9, (shape[0], 1)), chance.integers(0, 9, shape[1])
        found += [rows + columns / 8, np.broadcast_to(rows / 8, shape), columns / 8 + 0.1 * rows]
    return [matrix for matrix in found if np.ptp(matrix)]


def test_mean_squares_by_hand():
    # Rows 0.5, 0.4; columns 0.8, 0.3, 0.25; mean 0.45. Squares: seeds 3 (2 x 0.05^2) / 1 = 0.015,
    # problems 2 (0.35^2 + 0.15^2 + 0.2^2) / 2 = 0.185, rest 6 terms of 0.05^2 / 2 = 0.0075 here.
    matrix = np.array([[0.9, 0.3, 0.3], [0.7, 0.3, 0.2]])
    found = estimate(matrix, SHARES)
    rest = np.array([[0.05, -0.05, 0.0], [-0.05, 0.05, 0.0]])
    seeds, problems, within = 0.015, 0.185, (rest**2).sum() / 2
    variance = seeds + problems - within
    df = variance**2 / (seeds**2 / 1 + problems**2 / 2 + within**2 / 2)
    assert found.value == pytest.approx(0.45)
    assert found.error == pytest.approx((variance / 6) ** 0.5)
    assert found.df == pytest.approx(df)


@pytest.mark.parametrize("turn", [np.asarray, np.transpose])
def test_one_seed_or_one_problem_is_a_t_test_over_the_other(turn):
    values = np.random.default_rng(1).random((1, 9))
    found = estimate(turn(values), SHARES)
    test = stats.ttest_1samp(values[0], 0.3)
    low, high = test.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.p_at(0.3) == pytest.approx(test.pvalue)


def test_seeds_that_all_problems_follow_are_a_t_test_over_seeds():
    means = np.array([0.3, 0.5, 0.45, 0.6])
    found = estimate(np.repeat(means[:, None], 50, axis=1), SHARES)
    low, high = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert (found.low, found.high, found.df) == (pytest.approx(low), pytest.approx(high), 3)


def test_equal_means_of_noise_are_not_taken_for_certainty():
    found = estimate(np.array([[1.0, 0.0], [0.0, 1.0]]), SHARES)
    assert (found.low, found.high) == (0, 1)


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
    found = estimate(np.full((3, 40), value), bounds)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    for end in (low, value, high):
        assert found.p_at(end) == pytest.approx(1.0 if end == value else 0.05)
    assert (found.p_at((low + 99 * value) / 100), found.p_at(2)) == (1, 0)
    exact = stats.binomtest(40, 40).proportion_ci(0.95)
    assert pytest.approx(exact.low) == 0.025 ** (1 / 40)


def test_p_and_interval_agree():
    found = estimate(np.random.default_rng(2).normal(0.1, 0.4, (3, 40)), DIFFERENCES)
    assert [found.p_at(end) for end in (found.low, found.high)] == pytest.approx([0.05, 0.05])


@pytest.mark.parametrize("shape", [(2, 40), (3, 40), (3, 41), (7, 11), (20, 500), (2, 2)])
@pytest.mark.parametrize("deviation", [1.0, -1.0, 0.1, 1 / 3, 7 / 8])
def test_one_deviating_cell_gives_the_same_interval_wherever_it_is(shape, deviation):
    """All three mean squares are equal there, but for rounding."""
    cells = np.ndindex(shape) if shape[1] < 100 else [(0, 0), (3, 71), (19, 499), (11, 250)]
    found = []
    for cell in cells:
        matrix = np.full(shape, 0.3)
        matrix[cell] += deviation
        one = estimate(matrix, (-2, 2))
        found.append((one.value, one.error, one.df, one.low, one.high, one.p_at(0.25)))
    assert [one[2] for one in found] == [shape[0] - 1] * len(found)
    np.testing.assert_allclose(found, [found[0]] * len(found), rtol=1e-9)
    assert found[0][1] == pytest.approx(abs(deviation) / np.prod(shape))


def test_seeds_and_problems_may_be_in_any_order():
    chance = np.random.default_rng(6)
    for matrix in grids():
        one = estimate(matrix, (-20, 20))
        for _ in range(4):
            rows, columns = map(chance.permutation, map(range, matrix.shape))
            other = estimate(matrix[np.ix_(rows, columns)], (-20, 20))
            assert (other.low, other.high, other.df, other.p_at(0.3)) == pytest.approx(
                (one.low, one.high, one.df, one.p_at(0.3)), rel=1e-7, abs=1e-9
            )


def test_scores_may_be_turned_over_and_scaled():
    for matrix in grids():
        one = estimate(matrix, (-20, 20))
        for scale in (-1, 100, 1 / 7):
            other = estimate(scale * matrix, (-2000, 2000))
            assert (other.error, other.df) == pytest.approx(
                (abs(scale) * one.error, one.df), rel=1e-7
            )


def test_intervals_are_those_of_exact_fractions():
    for matrix in grids():
        variance, df = exact(matrix)
        found = estimate(matrix, (-20, 20))
        assert (found.error, found.df) == pytest.approx((float(variance) ** 0.5, float(df)))
        half = stats.t.isf(0.025, float(df)) * float(variance) ** 0.5
        assert found.high == pytest.approx(min(20.0, matrix.mean() + half))


def test_of_equal_mean_squares_the_fewest_degrees_of_freedom_stand():
    matrix = np.ones((3, 40))
    matrix[1, 7] = 0  # Pass@8 of three runs, one of which solves all problems but one
    found = estimate(matrix, SHARES)
    assert (found.df, found.low, found.high) == (2, pytest.approx(0.9558, abs=5e-5), 1)
