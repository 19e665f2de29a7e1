"""Means over tokens and completions. Values are (N, T) or (N, 1), masks (N, T), results 0-d."""

from rapid.algorithms.groups import Tensor


def token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the tokens of all completions; each token has the same weight."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def completion_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over completions of their token means; each completion has the same weight.

    A completion without tokens has the mean 0.
    """
    return ((values * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


def mean_completion_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over completions of the sum over their tokens, as in a policy gradient."""
    return (values * mask).sum(1).mean()


def reinforce_loss(logp: Tensor, mask: Tensor, advantages: Tensor) -> Tensor:
    """Return REINFORCE's loss, minus the mean of A_n log pi(y_n | x_n). Advantages are (N,)."""
    return -(advantages * (logp * mask).sum(1)).mean()
