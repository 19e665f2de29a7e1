"""OAPL: Ritter et al. 2026 (LLMs Can Learn to Reason Via Off-Policy RL), arXiv 2602.19362.

OAPL stands for Optimal Advantage-based Policy Optimization with Lagged inference policy. The policy
that maximizes E[R] - beta KL(pi | mu) satisfies beta log(pi / mu) = R - V*, where V* is beta times
the logarithm of the mean of exp(R / beta). OAPL estimates V* from the group, and minimizes the
squared difference of both sides. mu stays the same for many steps, here for H.

beta has one value in V* (`beta_value`) and another one before the log ratio (`beta_policy`), as in
KARL (arXiv 2603.05218), which trains with OAPL. If `beta_value` is large, V* is the group's mean
reward, and the gradient is proportional to that of `dro` with tau = `beta_policy`.
"""

from typing import Any

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import GroupKind, Tensor, to_groups


class OaplParameters(Parameters):
    beta_value: PositiveFloat = Field(
        1.0,
        title="beta of the value",
        description="temperature of V*: large values bring V* near the group's mean reward, small "
        "values near its largest reward",
    )
    beta_policy: PositiveFloat = Field(
        1e-3,
        title="beta of the policy",
        description="weight of the log ratio of pi and mu: larger values keep the policy near mu",
    )


def compute_optimal_advantages(rewards: Tensor, group_size: int, beta: float) -> Tensor:
    """Return R - V*, V* = beta log(mean of exp(R / beta) over the group). (N,) -> (N,)

    In groups of equal rewards the result is exactly 0.
    """
    groups = to_groups(rewards, group_size)
    # Relative to the largest reward, exp does not overflow, and is exactly 1 for equal rewards.
    largest = groups.max(1, keepdim=True).values
    mean_exp = ((groups - largest) / beta).exp().mean(1, keepdim=True)
    return (groups - largest - beta * mean_exp.log()).flatten()


def oapl_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    beta_value: float,
    beta_policy: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean squared difference of log ratios and optimal advantages.

        loss = 1/N sum_n (beta_policy l_n - (R_n - V_n))^2
        l_n  = log(pi(y_n | x_n) / mu(y_n | x_n))
        V_n  = beta_value log(mean of exp(R / beta_value) over n's group)

    Arguments: see `LossInputs` in base.py. The only metric is `staleness`, the mean of |l_n|.
    """
    log_ratio = ((logp - behavior_logp) * mask).sum(1)  # (N,), carries the gradient
    advantages = compute_optimal_advantages(rewards, group_size, beta_value)
    loss = (beta_policy * log_ratio - advantages).square().mean()
    return loss, {"staleness": log_ratio.detach().abs().mean()}


class Oapl(GroupRelative):
    name = "oapl"
    label = "OAPL"
    plot_style = PlotStyle("#F000E0", "o", (0, (1, 3, 4, 3)))
    parameters = OaplParameters
    loss_function = staticmethod(oapl_loss)

    def get_gradient_group_kind(self, settings: Any, on_policy: bool) -> GroupKind:
        # Off-policy the log ratio has a gradient in groups of equal rewards too.
        return "unequal" if on_policy else "all"

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        return compute_optimal_advantages(rewards, group_size, settings.beta_value)
