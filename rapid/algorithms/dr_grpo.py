"""Dr. GRPO: Liu et al. 2025 (Understanding R1-Zero-Like Training), arXiv 2503.20783.

GRPO divides by a completion's length, which favours long wrong answers, and by the standard
deviation of a group's rewards, which gives more weight to prompts whose rewards differ little. Dr.
GRPO divides by neither, and has no KL term.
"""

from pydantic import Field

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, group_mean
from rapid.algorithms.means import mean_completion_sum
from rapid.algorithms.ratios import clipped_surrogate, compute_clip_metrics


class DrGrpoParameters(Parameters):
    epsilon: float = Field(
        0.2,
        gt=0,
        lt=1,
        title="clip of the ratio",
        description="token ratios are clipped to [1 - epsilon, 1 + epsilon]",
    )


def dr_grpo_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    epsilon: float,
    limit: int,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clipped token ratios, summed over tokens.

        loss = 1/N sum_n 1/L sum_t max(-r A_n, -clip(r, 1 - epsilon, 1 + epsilon) A_n)
        A_n  = R_n - mean of R over n's group

    r is the ratio pi / mu of a token. L is `limit`, the largest number of tokens of a completion;
    the authors' code divides by it too.
    Arguments: see `LossInputs`. Metrics are `clip_fraction`, the share of tokens that are clipped,
    and `clip_low`, the share of tokens that are clipped at 1 - epsilon.
    """
    advantages = rewards - group_mean(rewards, group_size)
    token_loss, is_clipped = clipped_surrogate(
        logp - behavior_logp, advantages, low=epsilon, high=epsilon
    )
    return mean_completion_sum(token_loss, mask) / limit, compute_clip_metrics(
        is_clipped, advantages, mask
    )


class DrGrpo(GroupRelative):
    name = "dr-grpo"
    label = "Dr. GRPO"
    plot_style = PlotStyle("#0B2A6F", ">", (0, (6, 1)))
    parameters = DrGrpoParameters
    loss_function = staticmethod(dr_grpo_loss)
    metrics_over = "token"
