"""DPPO: Qi et al. 2026, arXiv 2602.04879.

The paper's title is "Rethinking the Trust Region in LLM Reinforcement Learning".

A token is left out of the gradient if its probability has moved too far in the direction of its
advantage. PPO tests the probability ratio instead, which for rare tokens says little about the
distance of two policies. The distance here is the paper's Binary-TV, |pi - mu| of the token: the
total variation distance of the two policies' distributions over "this token" and "any other token".
"""

from pydantic import Field, PositiveFloat

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, group_mean
from rapid.algorithms.means import mean_completion_sum
from rapid.algorithms.ratios import compute_clip_metrics, truncate_ratios


class DppoParameters(Parameters):
    divergence: float = Field(
        0.2,
        gt=0,
        le=1,
        title="trust region",
        description="largest change of a token's probability: tokens whose probability has moved "
        "further in the direction of their advantage are left out",
    )
    cap: PositiveFloat = Field(
        5.0, title="clip above", description="token ratios are clipped above this"
    )


def dppo_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    divergence: float,
    cap: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Truncated token ratios as weights, within a trust region of probabilities: eq. 12, 13, 23.

        grad J = 1/N sum_n A_n sum_t M_nt min(r, cap) grad log pi(y_nt)
        A_n    = R_n - mean of R over n's group
        M_nt   = 0 if sign(A_n) (pi(y_nt) - mu(y_nt)) > divergence, else 1

    r is the ratio pi / mu of a token. Without M this is `tis_loss`. Arguments: see `LossInputs`.
    Metrics are `clip_fraction`, the share of tokens with M_nt = 0, and `clip_low`, the share of
    tokens with M_nt = 0 and A_n < 0.
    """
    advantages = rewards - group_mean(rewards, group_size)
    probability_change = logp.detach().exp() - behavior_logp.exp()  # (N, T)
    is_left_out = probability_change * advantages.sign()[:, None] > divergence
    weights, _ = truncate_ratios(logp, behavior_logp, mask, cap)
    loss = mean_completion_sum(-weights * ~is_left_out * advantages[:, None] * logp, mask)
    return loss, compute_clip_metrics(is_left_out, advantages, mask)


class Dppo(GroupRelative):
    name = "dppo"
    label = "DPPO"
    plot_style = PlotStyle("#9E9D24", "D", (0, (5, 2, 1, 2)))
    parameters = DppoParameters
    loss_function = staticmethod(dppo_loss)
    metrics_over = "token"
