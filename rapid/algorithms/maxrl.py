"""MaxRL: Tajwar et al. 2026 (Maximum Likelihood Reinforcement Learning), arXiv 2602.02710.

Advantages are divided by the group's mean reward, so that rarely solved prompts count more, as in
the gradient of log p, where p is the probability that a completion is correct. With rewards of 0
and 1 and groups of N_k completions, the gradient is an unbiased estimate of that of the first
N_k - 1 terms of the series

    log p = -sum over k = 1, 2, ... of (1 - p)^k / k

Other rewards of at least 0 replace p by the expected reward. Negative ones are refused, because
with a negative mean the division would reverse the gradient.
"""

from typing import Any

from rapid.algorithms.base import PlotStyle
from rapid.algorithms.groups import Tensor, group_mean
from rapid.algorithms.means import reinforce_loss
from rapid.algorithms.pg import Pg


def compute_relative_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """Return (R - mean R) / mean R in each group, or 0 if mean R is 0. (N,) -> (N,)

    Raises:
        ValueError: a reward is negative.
    """
    mean = group_mean(rewards, group_size)
    if (negative := rewards < 0).any():
        row = int(negative.nonzero()[0])
        raise ValueError(
            f"completion {row % group_size + 1} of group {row // group_size + 1} has the reward "
            f"{rewards[row].item():g}, but maxrl divides by a group's mean reward as if this were "
            "the probability that a completion is correct: use rewards of at least 0, for example "
            "by adding a constant to all of them, or another objective"
        )
    return (rewards - mean) / mean.masked_fill(mean == 0, 1)


def maxrl_loss(
    logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient with relative advantages.

        grad J = 1/N sum_n A_n grad log pi(y_n | x_n)
        A_n    = (R_n - mean R) / mean R, with means over n's group; 0 if all rewards are 0

    Arguments: see `LossInputs`. There are no metrics.

    Raises:
        ValueError: a reward is negative.
    """
    return reinforce_loss(logp, mask, compute_relative_advantages(rewards, group_size)), {}


class MaxRl(Pg):
    name = "maxrl"
    label = "MaxRL"
    plot_style = PlotStyle("#1A10FF", "^", (0, (2, 2)))
    loss_function = staticmethod(maxrl_loss)

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        return compute_relative_advantages(rewards, group_size)
