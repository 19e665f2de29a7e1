"""MaxRL: Tajwar et al. 2026 (Maximum Likelihood Reinforcement Learning), arXiv 2602.02710.

Advantages are divided by the group's mean reward, so that rarely solved prompts count more, as in
the gradient of log p, where p is the probability that a completion is correct. With rewards of 0
and 1 and groups of N_k completions, the gradient is an unbiased estimate of that of the first
N_k - 1 terms of the series

    log p = -sum over k = 1, 2, ... of (1 - p)^k / k
"""

from typing import Any

from rapid.algorithms.base import PlotStyle
from rapid.algorithms.groups import Tensor, group_mean
from rapid.algorithms.means import reinforce_loss
from rapid.algorithms.pg import Pg


def compute_relative_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """Return (R - mean R) / mean R in each group, or R - mean R if mean R is 0. (N,) -> (N,)"""
    mean = group_mean(rewards, group_size)
    return (rewards - mean) / mean.masked_fill(mean == 0, 1)


def maxrl_loss(
    logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient with relative advantages.

        grad J = 1/N sum_n A_n grad log pi(y_n | x_n)
        A_n    = (R_n - mean R) / mean R, with means over n's group; 0 if all rewards are 0

    Arguments: see `LossInputs`. There are no metrics.
    """
    return reinforce_loss(logp, mask, compute_relative_advantages(rewards, group_size)), {}


class MaxRl(Pg):
    name = "maxrl"
    label = "MaxRL"
    plot_style = PlotStyle("#1A10FF", "^", (0, (2, 2)))
    loss_function = staticmethod(maxrl_loss)

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        return compute_relative_advantages(rewards, group_size)
