"""AsymRE: Arnal et al. 2025 (Asymmetric REINFORCE), arXiv 2506.20520.

REINFORCE without importance weights, with a baseline slightly below the mean reward. A lower
baseline increases the advantages of all completions. The paper shows that, off-policy, the policy
improves if the baseline is below the mean reward of the behaviour policy, and may collapse onto few
completions if it is not. With `shift` = 0 this is `pg`. The paper calls the shift delta V.
"""

from typing import Any

from pydantic import Field

from rapid.algorithms.base import Parameters, PlotStyle
from rapid.algorithms.groups import GroupKind, Tensor, group_mean
from rapid.algorithms.means import reinforce_loss
from rapid.algorithms.pg import Pg


class AsymreParameters(Parameters):
    shift: float = Field(
        -0.1,
        title="shift of the baseline",
        description="Added to the group's mean reward to get the baseline.",
    )


def compute_shifted_advantages(rewards: Tensor, group_size: int, shift: float) -> Tensor:
    """Return R - (mean R + shift), with the mean over the completion's group. (N,) -> (N,)"""
    return rewards - group_mean(rewards, group_size) - shift


def asymre_loss(
    logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int, shift: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """REINFORCE with a shifted baseline.

        grad J = 1/N sum_n (R_n - V_n) grad log pi(y_n | x_n)
        V_n    = shift + mean of R over n's group

    With a shift of 0 this is `pg_loss`. Arguments: see `LossInputs`. There are no metrics.
    """
    return reinforce_loss(logp, mask, compute_shifted_advantages(rewards, group_size, shift)), {}


class Asymre(Pg):
    name = "asymre"
    label = "AsymRE"
    plot_style = PlotStyle("#00C000", "v", (0, (8, 2, 2, 2)))
    parameters = AsymreParameters
    loss_function = staticmethod(asymre_loss)

    def get_gradient_group_kind(self, settings: Any, on_policy: bool) -> GroupKind:
        # With a shift, groups of equal rewards have a gradient too: their advantages are -shift.
        # Without it only "unequal" groups have one, those whose rewards are not all equal.
        return "all" if settings.shift else "unequal"

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        return compute_shifted_advantages(rewards, group_size, settings.shift)
