"""CISPO: MiniMax 2025 (MiniMax-M1), arXiv 2506.13585.

CISPO clips the importance weight of a token, which keeps its gradient. In contrast, PPO clips the
objective, so that a clipped token has no gradient.
"""

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, standardize
from rapid.algorithms.means import token_mean
from rapid.algorithms.ratios import truncate_ratios


class CispoParameters(Parameters):
    cap: PositiveFloat = Field(
        5.0,
        title="clip above",
        description="token ratios are clipped above this; 5 is from arXiv 2510.13786",
    )


def cispo_loss(
    logp: Tensor, behavior_logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int, cap: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient with clipped token ratios as weights, averaged over all tokens.

        grad J = 1 / sum_n |y_n| sum_n sum_t min(r, cap) A_n grad log pi(y_nt)
        A_n    = (R_n - mean of R) / (standard deviation of R) over n's group

    r is the ratio pi / mu of a token. Arguments: see `LossInputs`. The only metric is
    `clip_fraction`, the share of tokens with r above the cap.
    """
    advantages = standardize(rewards, group_size)
    weights, metrics = truncate_ratios(logp, behavior_logp, mask, cap)
    return token_mean(-weights * advantages[:, None] * logp, mask), metrics


class Cispo(GroupRelative):
    name = "cispo"
    label = "CISPO"
    plot_style = PlotStyle("#7A1F2B", "d", (0, (1, 1)))
    parameters = CispoParameters
    loss_function = staticmethod(cispo_loss)
    mean_over = metrics_over = "token"
    scale_rewards = "group"
