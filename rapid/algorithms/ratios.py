"""PPO's clipped surrogate of token ratios, which GRPO and DAPO share."""

from rapid.algorithms.groups import Tensor


def clipped_surrogate(
    logp: Tensor, behavior_logp: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """Return -min(r A, clip(r, 1 - low, 1 + high) A) of each token, r = exp(logp - behavior_logp).

    Args:
        logp, behavior_logp: (N, T) nats.
        advantages: (N,).

    Returns:
        The loss of each token, and whether the clip bounds it (its gradient is zero); (N, T) each.
    """
    ratio = (logp - behavior_logp).exp()
    advantages = advantages[:, None]
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - low, 1 + high) * advantages
    return -unclipped.minimum(clipped), clipped < unclipped
