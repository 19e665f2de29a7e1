"""Truncated importance sampling by token (TIS): Yao et al. 2025; PG-TIS in arXiv 2602.04879.

This is a policy gradient in which each token has its own importance weight. The weight is not
multiplied by those of the preceding tokens, although these were sampled from the behaviour policy
too. RAPID with `clip=both` is truncated importance sampling by completion.
"""

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, group_mean
from rapid.algorithms.means import mean_completion_sum
from rapid.algorithms.ratios import truncate_ratios


class TisParameters(Parameters):
    cap: PositiveFloat = Field(
        2.0, title="clip above", description="token ratios are clipped above this"
    )


def tis_loss(
    logp: Tensor, behavior_logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int, cap: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient with truncated token ratios as weights.

        grad J = 1/N sum_n A_n sum_t min(r, cap) grad log pi(y_nt)
        A_n    = R_n - mean of R over n's group

    This is eq. 23 of arXiv 2602.04879 without its mask M_t. r is the ratio pi / mu of a token. With
    pi = mu this is `pg_loss`.

    Args:
        logp, behavior_logp, mask, rewards, group_size: see `LossInputs`.
        cap: upper bound of r.

    The only metric is `clip_fraction`, the share of tokens with r above the cap.
    """
    weights, metrics = truncate_ratios(logp, behavior_logp, mask, cap)
    advantages = rewards - group_mean(rewards, group_size)
    loss = mean_completion_sum(-weights * advantages[:, None] * logp, mask)
    return loss, metrics


class Tis(GroupRelative):
    name = "tis"
    label = "token TIS"
    plot_style = PlotStyle("#4D7A1F", "X", (0, (2, 1)))
    parameters = TisParameters
    loss_function = staticmethod(tis_loss)
    metrics_over = "token"
