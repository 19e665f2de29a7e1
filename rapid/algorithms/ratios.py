"""Probability ratios pi / mu of tokens and completions: PPO's clip, and importance weights.

pi is the policy, and mu the behaviour policy, which sampled the completions. Shapes: N completions,
T tokens. Advantages are (N,), masks (N, T), log-probabilities (N, T) in nats.
"""

from rapid.algorithms.groups import Tensor
from rapid.algorithms.means import token_mean


def clipped_surrogate(
    log_ratio: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """Return PPO's losses -min(r A, clip(r, 1 - low, 1 + high) A), with r = exp(log_ratio).

    Args:
        log_ratio: (N, T) for ratios of tokens, (N, 1) for ratios of completions.

    Returns:
        The losses, and whether each is clipped (its gradient is zero); both shaped like log_ratio.
    """
    ratio = log_ratio.exp()
    advantages = advantages[:, None]
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - low, 1 + high) * advantages
    return -unclipped.minimum(clipped), clipped < unclipped


def compute_clip_metrics(is_clipped: Tensor, advantages: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Return two metrics: the share of tokens that are clipped, and clipped at the lower bound.

    They are 0-d. PPO's objective is clipped at the lower bound only if the advantage is negative.
    """
    is_low = is_clipped * (advantages < 0)[:, None]
    return {"clip_fraction": token_mean(is_clipped, mask), "clip_low": token_mean(is_low, mask)}


def truncate_ratios(
    logp: Tensor, behavior_logp: Tensor, mask: Tensor, cap: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return min(pi / mu, cap) of each token, without gradient, and a metric, `clip_fraction`.

    The metric, 0-d, is the share of tokens whose ratio is above the cap.
    """
    ratios = (logp - behavior_logp).detach().exp()
    return ratios.clamp(max=cap), {"clip_fraction": token_mean(ratios > cap, mask)}


def completion_log_weights(logp: Tensor, behavior_logp: Tensor, mask: Tensor) -> Tensor:
    """Return log(pi / mu) of each completion, without gradient. (N,)"""
    return ((logp - behavior_logp).detach() * mask).sum(1)


def select_by_sign(advantages: Tensor, positive: float, negative: float) -> Tensor:
    """Return `positive` where an advantage is positive, else `negative`, shaped like advantages."""
    return advantages.new_full(advantages.shape, negative).masked_fill(advantages > 0, positive)
