"""VESPO: Shen et al. 2026, arXiv 2602.10693.

The paper's title is "Variational Sequence-level Soft Policy Optimization".

A gamma kernel phi(w) replaces the importance weight w of a completion. phi is 1 where the policy
equals the behaviour policy (w = 1), and goes to 0 for large w and, if k > 0, for small w.
"""

from pydantic import Field, NonNegativeFloat, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, standardize
from rapid.algorithms.means import token_mean
from rapid.algorithms.ratios import completion_log_weights, select_by_sign


class VespoParameters(Parameters):
    k_pos: NonNegativeFloat = Field(
        2.0,
        title="power, positive advantages",
        description="power of the weight where the advantage is positive",
    )
    decay_pos: PositiveFloat = Field(
        3.0,
        title="decay, positive advantages",
        description="exponential decay in the weight where the advantage is positive",
    )
    k_neg: NonNegativeFloat = Field(
        3.0,
        title="power, negative advantages",
        description="power of the weight where the advantage is negative or 0",
    )
    decay_neg: PositiveFloat = Field(
        2.0,
        title="decay, negative advantages",
        description="exponential decay in the weight where the advantage is negative or 0",
    )


def vespo_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    k_pos: float,
    decay_pos: float,
    k_neg: float,
    decay_neg: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """REINFORCE with phi as the weight of a completion, averaged over all tokens.

        grad J = 1 / sum_n |y_n| sum_n phi(w_n) A_n grad log pi(y_n | x_n)
        phi(w) = w^k exp(decay (1 - w)),    w_n = pi(y_n | x_n) / mu(y_n | x_n)
        A_n    = (R_n - mean of R) / (standard deviation of R) over n's group

    k and decay are `k_pos` and `decay_pos` where A_n > 0, else `k_neg` and `decay_neg`. Arguments:
    see `LossInputs`. The only metric is `weight`, the mean of phi.
    """
    advantages = standardize(rewards, group_size)
    log_weight = completion_log_weights(logp, behavior_logp, mask)  # (N,), without gradient
    k = select_by_sign(advantages, k_pos, k_neg)
    decay = select_by_sign(advantages, decay_pos, decay_neg)
    # log phi(w) = k log w + decay (1 - w)
    phi = (decay + k * log_weight - decay * log_weight.exp()).exp()  # (N,)
    loss = token_mean(-(phi * advantages)[:, None] * logp, mask)
    return loss, {"weight": phi.mean()}


class Vespo(GroupRelative):
    name = "vespo"
    label = "VESPO"
    plot_style = PlotStyle("#5D4037", "P", (0, (1, 2)))
    parameters = VespoParameters
    loss_function = staticmethod(vespo_loss)
    mean_over = "token"
    scale_rewards = "group"
