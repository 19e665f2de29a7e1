"""Group-relative policy gradient, on-policy: paper, section 3.3."""

from torch import Tensor

from rapid.objectives.groups import group_mean


def pg_loss(
    logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient (eq. 1) with the group mean as baseline (eq. 2); no standard deviation, no KL.

        grad J = 1/N sum_n A_n grad log pi(y_n | x_n),    A_n = R_n - mean of R over n's group

    Args:
        logp: (N, T) log pi of the sampled tokens, nats; carries the gradient.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,) R_n.
        group_size: completions of one prompt; groups are contiguous rows.

    Returns:
        The loss (0-d), a mean over the N completions, and an empty dict: on-policy nothing is clipped.

    Raises:
        ValueError: N is not a whole number of groups.
    """
    advantages = rewards - group_mean(rewards, group_size)  # (N,)
    return -(advantages * (logp * mask).sum(1)).mean(), {}
