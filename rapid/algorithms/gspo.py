"""GSPO: Zheng et al. 2025 (Group Sequence Policy Optimization), arXiv 2507.18071.

The ratio that is clipped is that of a whole completion: the geometric mean of its token ratios.
Such means are close to 1, so the clip range is narrow.
"""

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, standardize
from rapid.algorithms.means import completion_mean
from rapid.algorithms.ratios import clipped_surrogate, compute_clip_metrics


class GspoParameters(Parameters):
    clip_low: float = Field(
        3e-4,
        gt=0,
        lt=1,
        title="clip below",
        description="completions' ratios are clipped below 1 - clip_low",
    )
    clip_high: PositiveFloat = Field(
        4e-4,
        title="clip above",
        description="completions' ratios are clipped above 1 + clip_high",
    )


def gspo_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    clip_low: float,
    clip_high: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's clip of a completion's ratio s, the geometric mean of its token ratios (eq. 7).

        loss = 1/N sum_n max(-s_n A_n, -clip(s_n, 1 - clip_low, 1 + clip_high) A_n)
        s_n  = (pi(y_n | x_n) / mu(y_n | x_n))^(1 / |y_n|)
        A_n  = (R_n - mean of R) / (standard deviation of R) over n's group

    Arguments: see `LossInputs`. Metrics are `clip_fraction`, the share of completions that are
    clipped, and one that is named like the parameter `clip_low`: the share of completions that are
    clipped at the lower bound.
    """
    advantages = standardize(rewards, group_size)
    lengths = mask.sum(1, keepdim=True).clamp(min=1)
    log_ratio = ((logp - behavior_logp) * mask).sum(1, keepdim=True) / lengths  # (N, 1)
    losses, is_clipped = clipped_surrogate(log_ratio, advantages, clip_low, clip_high)  # (N, 1)
    shares = compute_clip_metrics(is_clipped, advantages, mask.new_ones(is_clipped.shape))
    # Each token has the loss of its completion, so the mean over tokens is this loss, or 0 for a
    # completion without tokens.
    return completion_mean(losses, mask), shares


class Gspo(GroupRelative):
    name = "gspo"
    label = "GSPO"
    plot_style = PlotStyle("#00B8D4", "p", (0, (3, 1)))
    parameters = GspoParameters
    loss_function = staticmethod(gspo_loss)
    scale_rewards = "group"
