"""Geometric sequence mask: verl's Geo-RS (section 3.3.3 of its docs/algo/rollout_corr_math.md).

A completion is left out if the geometric mean of its token ratios is too far from 1. The mean does
not depend on the completion's length, whereas a bound on the product of the ratios would leave out
long completions first (richardli.xyz/rl-collapse-3). The completions that are kept have no
importance weights.

verl made the mask and its bounds for the small difference between a sampler and a trainer with the
same weights. With H > 1 optimizer steps per inference batch the ratios are further from 1, so that
the same bounds leave out more completions.
"""

from pydantic import Field

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, group_mean
from rapid.algorithms.means import reinforce_loss
from rapid.algorithms.ratios import completion_log_weights


class GeoMaskParameters(Parameters):
    low: float = Field(
        0.999,
        gt=0,
        le=1,
        title="mask below",
        description="completions whose geometric mean of token ratios is below this are left out",
    )
    high: float = Field(
        1.001,
        ge=1,
        title="mask above",
        description="completions whose geometric mean of token ratios is above this are left out",
    )


def geo_mask_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    low: float,
    high: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient on completions whose geometric mean of token ratios is within bounds.

        grad J = 1/N sum_n M_n A_n grad log pi(y_n | x_n)
        A_n    = R_n - mean of R over n's group
        M_n    = 1 if low <= (pi(y_n | x_n) / mu(y_n | x_n))^(1 / |y_n|) <= high, else 0

    Arguments: see `LossInputs`. The only metric is `clip_fraction`, the share of completions that
    are left out.
    """
    advantages = rewards - group_mean(rewards, group_size)
    lengths = mask.sum(1).clamp(min=1)
    ratio = (completion_log_weights(logp, behavior_logp, mask) / lengths).exp()  # (N,)
    is_kept = ((ratio >= low) & (ratio <= high)).to(advantages.dtype)
    return reinforce_loss(logp, mask, is_kept * advantages), {"clip_fraction": 1 - is_kept.mean()}


class GeoMask(GroupRelative):
    name = "geo-mask"
    label = "geometric mask"
    plot_style = PlotStyle("#F080F0", "h", (0, (7, 3)))
    parameters = GeoMaskParameters
    loss_function = staticmethod(geo_mask_loss)
