"""A mean of paired differences over several whole runs of one experiment, which are blocks.

Every run of the experiment has the same seeds and test problems, on another machine or at another
commit. A difference is taken within a run, so that what is common to all of its algorithms cancels.
The runs themselves are no random sample: the interval is for the mean over these runs.
"""

import math
from collections.abc import Sequence

import numpy as np

from reports.statistics.crossed import mean_squares, satterthwaite
from reports.statistics.estimates import ROUNDING, Estimate, student, unvaried


def estimate(
    blocks: Sequence[np.ndarray], scored: np.ndarray | None, bounds: tuple[float, float]
) -> Estimate:
    """Return the mean over blocks with its 95 % interval.

    The variance has two parts. That of seeds is computed from the deviations of seeds from the mean
    of their block. That of problems does not become smaller with more blocks, because all have the
    same problems. It is estimated from one block, as MS(problems) - MS(residuals) of its score
    matrix, and is 0 if the difference is negative.

    Args:
        blocks: the difference of each seed, a mean over problems, for each block.
        scored: the score matrix of one of the blocks, shape (seeds, problems or clusters of
            problems), see `crossed`. None if no block has scores: the interval is then for these
            problems only.
        bounds: smallest and largest possible difference.
    """
    differences = np.concatenate(blocks)
    n, over = len(differences), f"n = {len(differences)} seeds of {len(blocks)} runs"
    mean = float(np.mean([block.mean() for block in blocks]))
    if np.ptp(differences) < ROUNDING:
        return unvaried(mean, bounds, n, over)
    free = n - len(blocks)
    within = sum(float(((block - block.mean()) ** 2).sum()) for block in blocks)
    # The mean of block means; with equally large blocks it is within / free / n.
    share = sum(1 / len(block) for block in blocks) / len(blocks) ** 2
    variance, df = within / free * share, float(free)
    if scored is not None:
        (_, problems, residuals), (_, *frees) = mean_squares(scored)
        parts = [variance, problems / scored.size, residuals / scored.size]
        combined = parts[0] + parts[1] - parts[2]
        if combined > variance:
            variance, df = combined, satterthwaite(combined, parts, [df, *frees])
    return student(mean, math.sqrt(variance), df, over, bounds=bounds)
