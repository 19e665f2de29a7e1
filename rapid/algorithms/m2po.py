"""M2PO: Zheng et al. 2025 (Prosperity before Collapse), arXiv 2510.01161.

Bounds the second moment of log ratios, and not each ratio: only the most extreme tokens are left
out, until the mean square of the others is small. Only tokens count that have moved in the
direction of their advantage, as in PPO's clip.

The paper takes the mean over a batch. Here it is over a group, whose bound implies the batch's: a
gradient must not depend on how a step is cut into passes. With N_step of one group they are one.
"""

import math
from typing import Any

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Look, Parameters
from rapid.algorithms.groups import Tensor, standardized
from rapid.algorithms.means import token_mean
from rapid.algorithms.ratios import clip_shares


class M2poParameters(Parameters):
    tau: PositiveFloat = Field(
        0.04, title="second moment", description="largest one, of log ratios"
    )


def find_outliers(log_ratio: Tensor, counts: Tensor, group_size: int, tau: float) -> Tensor:
    """Return the tokens to leave out so that the mean square of the others is at most tau.

    They are as few as possible, the largest of each group. `counts` and the result are (N, T).
    """
    squares = log_ratio.square().masked_fill(~counts, math.inf)
    ascending, order = squares.view(len(squares) // group_size, -1).sort(1)  # a row per group
    within = ascending.cumsum(1) / order.new_ones(order.shape).cumsum(1) <= tau
    return counts & ~within.scatter(1, order, within).view(counts.shape)


def m2po_loss(
    logp: Tensor, behavior_logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int, tau: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Token ratios as weights but for the most extreme, averaged over all tokens.

        grad J = 1 / sum_n |y_n| sum_n sum_t M_nt r A_n grad log pi(y_nt)

    M_nt is 0 for the tokens of largest |log r| among those with A_n log r > 0, the fewest without
    which the mean of (log r)^2 over the others of these is at most tau.

    Other arguments, result and errors are those of `dapo_loss`.
    """
    advantages = standardized(rewards, group_size)
    log_ratio = (logp - behavior_logp).detach()
    counts = (log_ratio * advantages[:, None] > 0) & mask.bool()
    is_left_out = find_outliers(log_ratio, counts, group_size, tau)
    loss = token_mean(-(log_ratio.exp() * ~is_left_out) * advantages[:, None] * logp, mask)
    return loss, clip_shares(is_left_out, advantages, mask)


class M2po(GroupRelative):
    name = "m2po"
    label = "M2PO"
    look = Look("#FF7F6E", "s", (0, (6, 2)))
    parameters = M2poParameters
    loss_function = staticmethod(m2po_loss)
    mean_over = metrics_over = "token"
    scale_rewards = "group"

    def compares_weights(self, settings: Any) -> bool:
        return True
