"""DAPO's objective. Its dynamic sampling and overlong shaping belong to the trainer."""

from torch import Tensor

from rapid.objectives.groups import group_mean, group_std
from rapid.objectives.grpo import STD_FLOOR
from rapid.objectives.ratios import clipped_surrogate


def dapo_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    epsilon_low: float,
    epsilon_high: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clip-higher, averaged over the tokens of the batch, no KL: Yu et al. 2025, eq. 8.

    Args:
        logp: (N, T) log pi of the sampled tokens, nats; carries the gradient.
        behavior_logp: (N, T) log mu of the same tokens.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,).
        group_size: completions of one prompt; groups are contiguous rows.
        epsilon_low, epsilon_high: token ratios are clipped to [1 - low, 1 + high].

    Returns:
        The loss (0-d), a mean over the tokens of the N completions, and
        `clip_fraction` (share of tokens), 0-d.

    Raises:
        ValueError: N is not a whole number of groups.
    """
    advantages = rewards - group_mean(rewards, group_size)
    advantages = advantages / (group_std(rewards, group_size) + STD_FLOOR)
    token_loss, is_clipped = clipped_surrogate(
        logp, behavior_logp, advantages, epsilon_low, epsilon_high
    )
    tokens = mask.sum().clamp(min=1)
    loss = (token_loss * mask).sum() / tokens
    return loss, {"clip_fraction": (is_clipped * mask).sum() / tokens}
