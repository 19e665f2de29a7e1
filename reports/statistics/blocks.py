"""A mean of paired differences over repetitions of a whole experiment. Each repetition is a block.

All blocks have the same seeds and test problems, each on another machine or at another commit.
Differences are computed within a block, so that an effect of the machine or the commit on all
algorithms alike cancels. Blocks are not a random sample: the interval is for the mean over these
blocks.
"""

import math
from collections.abc import Sequence

import numpy as np

from reports.statistics.crossed import compute_mean_squares, satterthwaite_df
from reports.statistics.estimates import (
    ROUNDING,
    Estimate,
    clopper_pearson_estimate,
    student_estimate,
)


def estimate_mean(
    blocks: Sequence[np.ndarray], score_matrix: np.ndarray | None, bounds: tuple[float, float]
) -> Estimate:
    """Return the mean over blocks with its 95 % interval.

    If each block has one seed, there is no interval, unless all differences are equal.

    The variance has two parts. The variance of seeds is computed from the deviations of seeds from
    the mean of their block. The variance of problems does not become smaller with more blocks,
    because all blocks have the same problems. It is estimated from the score matrix of one block,
    as (MS(problems) - MS(residuals)) / number of scores (MS: mean square, see `crossed`), and is 0
    if this difference is negative.

    Args:
        blocks: for each block an array with the difference of each seed, a mean over problems.
        score_matrix: the differences in one block by seed and problem (or cluster of problems), a
            score matrix as in `crossed`. Without it the interval is for these test problems only.
        bounds: smallest and largest possible difference.
    """
    differences = np.concatenate(blocks)
    n, sample = len(differences), f"n = {len(differences)} seeds in {len(blocks)} repetitions"
    mean = float(np.mean([block.mean() for block in blocks]))
    if np.ptp(differences) < ROUNDING:  # equal differences, whose variance says nothing
        return clopper_pearson_estimate(mean, bounds, n, sample)
    df_seeds = n - len(blocks)
    if df_seeds == 0:  # one seed in each block: the noise of seeds is unknown
        return Estimate(mean, sample=sample)
    squares = sum(float(((block - block.mean()) ** 2).sum()) for block in blocks)
    # The variance of the mean of block means is that of seeds times this factor, which is 1 / n if
    # all blocks are equally large.
    factor = sum(1 / len(block) for block in blocks) / len(blocks) ** 2
    variance, df = squares / df_seeds * factor, float(df_seeds)
    if score_matrix is not None:
        (_, ms_problems, ms_residuals), (_, *dfs) = compute_mean_squares(score_matrix)
        parts = [variance, ms_problems / score_matrix.size, ms_residuals / score_matrix.size]
        combined = parts[0] + parts[1] - parts[2]
        if combined > variance:
            variance, df = combined, satterthwaite_df(combined, parts, [df, *dfs])
    return student_estimate(mean, math.sqrt(variance), df, sample, bounds=bounds)
