"""DRO: Richemond et al. 2024, arXiv 2405.19107; Kimi k1.5, arXiv 2501.12599.

The policy that maximizes E[R] - tau KL(pi | mu) satisfies tau log(pi / mu) = R - V for each
completion, where V depends on the prompt only. DRO (Direct Reward Optimisation) minimizes the
squared difference of both sides. It has no importance weights, and mu may be any policy.

Richemond et al. learn V with a second network. Kimi k1.5 and `dro_loss` use the mean reward of the
group; this is also known as policy mirror descent with mean rewards (arXiv 2602.05933).
"""

from typing import Any

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import GroupKind, Tensor, group_mean


class DroParameters(Parameters):
    tau: PositiveFloat = Field(
        0.05,
        title="weight of the penalty",
        description="weight of the squared log ratio of pi and mu",
    )


def dro_loss(
    logp: Tensor, behavior_logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int, tau: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Squared difference of log ratios and advantages, in the form of a policy gradient.

        loss   = 1/N sum_n (tau / 2 l_n^2 - A_n l_n)
        grad J = 1/N sum_n (A_n - tau l_n) grad log pi(y_n | x_n)
        l_n    = log(pi(y_n | x_n) / mu(y_n | x_n)),    A_n = R_n - mean of R over n's group

    tau times this loss is 1 / 2N sum_n (tau l_n - A_n)^2, apart from a constant.

    Arguments: see `LossInputs`; `tau` is in units of reward per nat. The only metric is
    `staleness`, the mean of |l_n|.
    """
    advantages = rewards - group_mean(rewards, group_size)
    log_ratio = ((logp - behavior_logp) * mask).sum(1)  # (N,), carries the gradient
    loss = (tau / 2 * log_ratio.square() - advantages * log_ratio).mean()
    return loss, {"staleness": log_ratio.detach().abs().mean()}


class Dro(GroupRelative):
    name = "dro"
    label = "DRO"
    plot_style = PlotStyle("#805000", "D", (0, (3, 3)))
    parameters = DroParameters
    loss_function = staticmethod(dro_loss)

    def get_gradient_group_kind(self, settings: Any, on_policy: bool) -> GroupKind:
        # Off-policy the penalty has a gradient in groups of equal rewards too.
        return "unequal" if on_policy else "all"
