"""REINFORCE leave-one-out (RLOO): Ahmadian et al. 2024, arXiv 2402.14740.

The baseline of a completion is the mean reward of the other completions of its group. The gradient
is unbiased, because the baseline does not contain the completion's own reward. With groups of N_k
completions each advantage is N_k / (N_k - 1) times that of `pg_loss`.
"""

from typing import Any

from rapid.algorithms.base import PlotStyle
from rapid.algorithms.groups import Tensor, group_mean_of_others
from rapid.algorithms.means import reinforce_loss
from rapid.algorithms.pg import Pg


def rloo_loss(
    logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient with the mean reward of the group's other completions as baseline.

        grad J = 1/N sum_n A_n grad log pi(y_n | x_n)
        A_n    = R_n - mean of R over the other completions of n's group

    Arguments: see `LossInputs`. There are no metrics. Groups of one completion raise ValueError.
    """
    advantages = rewards - group_mean_of_others(rewards, group_size)  # (N,)
    return reinforce_loss(logp, mask, advantages), {}


class Rloo(Pg):
    name = "rloo"
    label = "RLOO"
    plot_style = PlotStyle("#6A3D9A", "<", (0, (2, 2)))
    loss_function = staticmethod(rloo_loss)

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        """Return A_n of `rloo_loss`, for the logged table of completions."""
        return rewards - group_mean_of_others(rewards, group_size)
