"""TOPR: Le Roux et al. 2025 (Tapered Off-Policy REINFORCE), arXiv 2503.14286.

Completions with a positive advantage have the weight 1. Completions with a negative advantage have
the importance weight pi / mu, but at most 1. As the policy makes such a completion unlikely, its
weight goes to 0.

In the paper rewards are 1 and -1, without a baseline. Here they are usually 1 and 0. To get
advantages of both signs, `offset` is subtracted from them, or the group's mean if `offset` is None.
"""

from typing import Any

from pydantic import Field

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import GroupKind, Tensor, group_mean
from rapid.algorithms.means import reinforce_loss
from rapid.algorithms.ratios import completion_log_weights


class ToprParameters(Parameters):
    offset: float | None = Field(
        None,
        title="offset",
        description="Subtracted from rewards; null is the group's mean. With 0.5, rewards of 0 "
        "and 1 become -0.5 and 0.5, which are half of the paper's rewards.",
    )


def topr_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    offset: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """REINFORCE with truncated importance weights for negative advantages: eq. 7 and 8.

        grad J = 1/N sum_n c_n A_n grad log pi(y_n | x_n)
        c_n    = 1 if A_n >= 0, else min{pi(y_n | x_n) / mu(y_n | x_n), 1}

    A_n is R_n minus `offset`, or minus the mean of R over n's group if `offset` is None. Arguments:
    see `LossInputs`. Metrics are `clip_fraction`, the share of completions whose weight is cut to
    1, and `weight`, the mean of c_n.
    """
    advantages = rewards - (group_mean(rewards, group_size) if offset is None else offset)
    log_weight = completion_log_weights(logp, behavior_logp, mask)
    is_cut = (advantages < 0) & (log_weight > 0)
    taper = log_weight.clamp(max=0).masked_fill(advantages >= 0, 0).exp()  # (N,)
    loss = reinforce_loss(logp, mask, taper * advantages)
    return loss, {"clip_fraction": is_cut.to(taper.dtype).mean(), "weight": taper.mean()}


class Topr(GroupRelative):
    name = "topr"
    label = "TOPR"
    plot_style = PlotStyle("#004D40", "*", (0, (3, 1, 1, 1)))
    parameters = ToprParameters
    loss_function = staticmethod(topr_loss)

    def get_gradient_group_kind(self, settings: Any, on_policy: bool) -> GroupKind:
        # With the group mean, equal rewards have advantages of 0, on-policy and off-policy. With an
        # offset they may have others.
        return "unequal" if settings.offset is None else "all"

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        if settings.offset is None:
            return super().advantages(settings, rewards, group_size)
        return rewards - settings.offset
