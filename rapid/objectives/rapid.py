"""RAPID's importance-weighted group-relative policy gradient: paper, section 3.4.

Two departures from the paper's text, both forced:
1. The clipped weight of eq. 5 is min{w, eta}. The paper prints max, which would raise every small
   weight to eta; its own account (clipping prevents blow-up, about 5 % are clipped) says min.
2. The leave-one-out baseline divides by N_k - 1, which makes it an unbiased estimate of V. The paper
   prints N_k, which shrinks V by (N_k - 1) / N_k; the gradient is unbiased with either.
"""

import math
from typing import Literal

from torch import Tensor

from rapid.objectives.groups import group_mean, group_mean_of_others

MAX_LOG_WEIGHT = 60.0  # a weight of 1e26: beyond it only overflows, and a NaN where a reward is 0


def rapid_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    eta: float,
    clip: Literal["advantage", "both"] = "both",
    leave_one_out: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Off-policy policy gradient (eq. 3) with the clipped importance-weighted advantage (eq. 5).

        grad J = 1/N sum_n w_n A_n grad log pi(y_n | x_n)
        w_n    = pi(y_n | x_n) / mu(y_n | x_n), the product of the token ratios
        A_n    = R_n - 1/N_k sum over n's group of min{w_n', eta} R_n'

    Weights and advantages are constants of the gradient. With pi = mu this is `pg_loss`.

    Args:
        logp: (N, T) log pi of the sampled tokens, nats; carries the gradient.
        behavior_logp: (N, T) log mu of the same tokens, under the policy that sampled them.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,) R_n.
        group_size: N_k, completions of one prompt; groups are contiguous rows.
        eta: weights are clipped to at most eta; `inf` clips nothing.
        clip: "advantage" clips the weights in A_n only (Algorithm 1 to the letter); "both" clips the
            weight in front of A_n too.
        leave_one_out: leave n itself out of its baseline, which removes the estimator's bias.

    Returns:
        The loss (0-d), a mean over the N completions, and
        `staleness` (mean |log min(w, eta)|, nats), `clip_fraction` (share of w above eta) and
        `weight` (mean w), each 0-d.

    Raises:
        ValueError: N is not a whole number of groups, or leave_one_out leaves nobody in a group.
    """
    completion_logp = (logp * mask).sum(1)  # (N,) log pi(y_n | x_n)
    log_weight = (completion_logp - (behavior_logp * mask).sum(1)).detach()  # (N,)
    weight = log_weight.clamp(max=MAX_LOG_WEIGHT).exp()
    clipped = weight.clamp(max=eta)

    weighted = clipped * rewards
    value = (group_mean_of_others if leave_one_out else group_mean)(weighted, group_size)
    advantages = rewards - value
    loss = -((clipped if clip == "both" else weight) * advantages * completion_logp).mean()
    metrics = {
        "staleness": log_weight.clamp(max=math.log(eta)).abs().mean(),
        "clip_fraction": (weight > eta).to(weight.dtype).mean(),
        "weight": weight.mean(),
    }
    return loss, metrics
