"""SAPO: Gao et al. 2025 (Soft Adaptive Policy Optimization), arXiv 2511.20347.

A sigmoid of the token ratio replaces PPO's clip: the gradient of a token decays smoothly as its
ratio moves away from 1, and faster if the advantage is negative.
"""

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, standardize
from rapid.algorithms.means import completion_mean
from rapid.algorithms.ratios import select_by_sign


class SapoParameters(Parameters):
    temperature_pos: PositiveFloat = Field(
        1.0,
        title="temperature, positive advantages",
        description="how fast the gradient decays with the ratio, where the advantage is positive",
    )
    temperature_neg: PositiveFloat = Field(
        1.05,
        title="temperature, negative advantages",
        description="how fast the gradient decays with the ratio, where the advantage is negative",
    )


def sapo_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    temperature_pos: float,
    temperature_neg: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Gated token ratios, averaged over a completion's tokens.

        loss = -1/N sum_n 1/|y_n| sum_t f(r) A_n,    f(r) = 4 / tau sigmoid(tau (r - 1))
        A_n  = (R_n - mean of R) / (standard deviation of R) over n's group

    r is the ratio pi / mu of a token. tau is `temperature_pos` where A_n is positive, and
    `temperature_neg` elsewhere. Arguments: see `LossInputs`. There are no metrics, since nothing is
    clipped.
    """
    advantages = standardize(rewards, group_size)[:, None]
    tau = select_by_sign(advantages, temperature_pos, temperature_neg)
    gate = (tau * ((logp - behavior_logp).exp() - 1)).sigmoid() * 4 / tau
    return completion_mean(-gate * advantages, mask), {}


class Sapo(GroupRelative):
    name = "sapo"
    label = "SAPO"
    plot_style = PlotStyle("#C2185B", "p", (0, (4, 2)))
    parameters = SapoParameters
    loss_function = staticmethod(sapo_loss)
    scale_rewards = "group"
