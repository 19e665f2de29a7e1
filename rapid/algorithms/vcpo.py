"""VCPO's learning rate: Huang et al. 2026 (Stable Asynchrony), arXiv 2602.17616.

The paper's title is "Stable Asynchrony: Variance-Controlled Off-Policy RL for LLMs".

If a few completions of a step have much larger importance weights than the others, the step's
gradient has a large variance. The *effective sample size* (ESS) measures this: with N equal weights
it is N, and if one weight is much larger than all others it is 1. VCPO multiplies the learning rate
of the step by the square root of ESS / N. This is the rule for optimizers such as Adam, whose steps
do not depend on the size of the gradient.

VCPO's other part, a baseline that minimizes the variance, is not implemented, because it needs a
backward pass for each completion. Here the baseline is the group's mean reward.
"""

import math

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, group_mean
from rapid.algorithms.means import reinforce_loss
from rapid.algorithms.ratios import completion_log_weights

# Upper bound of log w: float32 holds the square of such a weight, and the sum of many squares.
MAX_LOG_WEIGHT = 40.0
SMALLEST_SQUARE = 1e-38  # near float32's smallest number; avoids 0 / 0 if all weights are 0


class VcpoParameters(Parameters):
    cap: PositiveFloat = Field(
        8.0, title="clip above", description="completions' weights are clipped above this"
    )


def vcpo_loss(
    logp: Tensor, behavior_logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int, cap: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient with truncated weights of completions, and metrics for `Vcpo.step_scale`.

        grad J = 1/N sum_n min(w_n, cap) A_n grad log pi(y_n | x_n)
        w_n    = pi(y_n | x_n) / mu(y_n | x_n),    A_n = R_n - mean of R over n's group

    Arguments: see `LossInputs`. Metrics are `clip_fraction`, the share of w_n above the cap, and
    `weight` and `squared_weight`, the means of w_n and of w_n^2, both without the cap.
    """
    advantages = rewards - group_mean(rewards, group_size)
    weight = (
        completion_log_weights(logp, behavior_logp, mask).clamp(max=MAX_LOG_WEIGHT).exp()
    )  # (N,)
    loss = reinforce_loss(logp, mask, weight.clamp(max=cap) * advantages)
    metrics = {
        "clip_fraction": (weight > cap).to(weight.dtype).mean(),
        "weight": weight.mean(),
        "squared_weight": weight.square().mean(),
    }
    return loss, metrics


class Vcpo(GroupRelative):
    name = "vcpo"
    label = "VCPO step"  # without VCPO's baseline
    plot_style = PlotStyle("#F00030", "X", (0, (5, 1, 1, 1)))
    parameters = VcpoParameters
    loss_function = staticmethod(vcpo_loss)
    scales_steps = True

    def step_scale(self, means: dict[str, float]) -> float:
        """Return sqrt(ESS / N), ESS = (sum of w)^2 / sum of w^2 over the step's N completions."""
        mean, mean_square = means["weight"], max(means["squared_weight"], SMALLEST_SQUARE)
        return min(1.0, mean / math.sqrt(mean_square))
