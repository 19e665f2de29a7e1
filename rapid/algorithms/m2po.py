"""M2PO: Zheng et al. 2025 (Prosperity before Collapse), arXiv 2510.01161.

M2PO bounds the second moment of log ratios, not each ratio: the tokens with the largest squared log
ratios are left out until the mean square of the others is at most tau. As in PPO's clip, only
tokens whose probability has moved in the direction of their advantage count and may be left out.

The paper bounds the mean over a batch. Here the mean over each group is bounded, so that the
gradient does not depend on how a batch is split into forward and backward passes. The bound on each
group implies the paper's bound.
"""

import math
from typing import Any

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, standardize
from rapid.algorithms.means import token_mean
from rapid.algorithms.ratios import compute_clip_metrics


class M2poParameters(Parameters):
    tau: PositiveFloat = Field(
        0.04, title="second moment", description="largest mean square of log ratios"
    )


def find_outliers(log_ratio: Tensor, is_candidate: Tensor, group_size: int, tau: float) -> Tensor:
    """Return the tokens to leave out so that the mean square of the others is at most tau.

    In each group these are the tokens with the largest squares, and as few as possible.

    Args:
        log_ratio: (N, T).
        is_candidate: (N, T) bool. Only these tokens are in the mean, and may be left out.

    Returns:
        (N, T) bool, a subset of `is_candidate`.
    """
    # The squares of other tokens become infinite. They are then sorted to the end, where they do
    # not change the means of the squares before them.
    squares = log_ratio.square().masked_fill(~is_candidate, math.inf)
    sorted_squares, order = squares.view(len(squares) // group_size, -1).sort(1)  # a row per group
    # The n smallest squares are kept if their mean is at most tau.
    is_kept_sorted = sorted_squares.cumsum(1) / order.new_ones(order.shape).cumsum(1) <= tau
    is_kept = is_kept_sorted.scatter(1, order, is_kept_sorted).view(is_candidate.shape)
    return is_candidate & ~is_kept


def m2po_loss(
    logp: Tensor, behavior_logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int, tau: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient with token ratios as weights, without the most extreme tokens.

        grad J = 1 / sum_n |y_n| sum_n sum_t M_nt r A_n grad log pi(y_nt)
        A_n    = (R_n - mean of R) / (standard deviation of R) over n's group

    r is the ratio pi / mu of a token. M_nt is 0 for the tokens that `find_outliers` selects in each
    group among those with A_n log r > 0, and otherwise 1. Arguments: see `LossInputs`, and for tau
    `M2poParameters`. Metrics are `clip_fraction`, the share of tokens with M_nt = 0, and
    `clip_low`, the share of tokens with M_nt = 0 and A_n < 0.
    """
    advantages = standardize(rewards, group_size)
    log_ratio = (logp - behavior_logp).detach()
    is_candidate = (log_ratio * advantages[:, None] > 0) & mask.bool()
    is_left_out = find_outliers(log_ratio, is_candidate, group_size, tau)
    loss = token_mean(-(log_ratio.exp() * ~is_left_out) * advantages[:, None] * logp, mask)
    return loss, compute_clip_metrics(is_left_out, advantages, mask)


class M2po(GroupRelative):
    name = "m2po"
    label = "M2PO"
    plot_style = PlotStyle("#FF7F6E", "s", (0, (6, 2)))
    parameters = M2poParameters
    loss_function = staticmethod(m2po_loss)
    mean_over = metrics_over = "token"
    scale_rewards = "group"

    def depends_on_group_weights(self, settings: Any) -> bool:
        """Return True: the ratios of the whole group decide which tokens are left out."""
        return True
