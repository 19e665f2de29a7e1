"""Probability ratios of the policy to the behaviour policy, as weights or clipped.

Shapes: N completions, T tokens. Advantages are (N,), masks (N, T), log-probabilities (N, T) nats.
"""

from rapid.algorithms.groups import Tensor
from rapid.algorithms.means import token_mean


def clipped_surrogate(
    log_ratio: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """Return PPO's -min(r A, clip(r, 1 - low, 1 + high) A), r = exp(log_ratio).

    Args:
        log_ratio: (N, T), or (N, 1) where a completion has one ratio.

    Returns:
        The losses, and whether the clip bounds each (its gradient is zero); both like log_ratio.
    """
    ratio = log_ratio.exp()
    advantages = advantages[:, None]
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - low, 1 + high) * advantages
    return -unclipped.minimum(clipped), clipped < unclipped


def clip_shares(is_clipped: Tensor, advantages: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Return the shares of tokens that are clipped, and clipped below, 0-d each."""
    is_low = is_clipped * (advantages < 0)[:, None]
    return {"clip_fraction": token_mean(is_clipped, mask), "clip_low": token_mean(is_low, mask)}


def truncated(
    logp: Tensor, behavior_logp: Tensor, mask: Tensor, cap: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return min(pi / mu, cap) of each token, constants of the gradient, and the share cut, 0-d."""
    ratios = (logp - behavior_logp).detach().exp()
    return ratios.clamp(max=cap), {"clip_fraction": token_mean(ratios > cap, mask)}


def log_weights(logp: Tensor, behavior_logp: Tensor, mask: Tensor) -> Tensor:
    """Return log pi / mu of each completion, constants of the gradient. (N,)"""
    return ((logp - behavior_logp).detach() * mask).sum(1)


def by_sign(advantages: Tensor, positive: float, negative: float) -> Tensor:
    """Return `positive` where an advantage is positive, else `negative`. Shaped like advantages."""
    return advantages.new_full(advantages.shape, negative).masked_fill(advantages > 0, positive)
