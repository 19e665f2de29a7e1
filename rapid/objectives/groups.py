"""Group statistics that the objectives share."""

from torch import Tensor


def group_mean(values: Tensor, group_size: int) -> Tensor:
    """The mean of each group, at each of its rows. (N,) -> (N,)

    Raises:
        ValueError: N is not a whole number of groups.
    """
    return in_groups(values, group_size).mean(1).repeat_interleave(group_size)


def group_std(values: Tensor, group_size: int) -> Tensor:
    """The sample standard deviation of each group, at each of its rows. (N,) -> (N,)

    Raises:
        ValueError: N is not a whole number of groups.
    """
    return in_groups(values, group_size).std(1).repeat_interleave(group_size)


def signal(rewards: Tensor, group_size: int) -> Tensor:
    """The share of groups whose rewards differ: the others have no advantage on-policy. 0-d."""
    groups = in_groups(rewards, group_size)
    return (groups != groups[:, :1]).any(1).to(rewards.dtype).mean()


def in_groups(values: Tensor, group_size: int) -> Tensor:
    """One row a group. (N,) -> (K, N_k)

    Raises:
        ValueError: N is not a whole number of groups.
    """
    if len(values) % group_size:
        raise ValueError(f"{len(values)} completions are not whole groups of {group_size}")
    return values.view(-1, group_size)  # (K, N_k)
