"""Group statistics that the objectives share."""

import torch
from torch import Tensor


def group_mean(values: Tensor, group_size: int) -> Tensor:
    """The mean of each group, at each of its rows. (N,) -> (N,)

    Raises:
        ValueError: N is not a whole number of groups.
    """
    return in_groups(values, group_size).mean(1).repeat_interleave(group_size)


def group_mean_of_others(values: Tensor, group_size: int) -> Tensor:
    """At each row the mean of the others of its group. (N,) -> (N,)

    Raises:
        ValueError: N is not a whole number of groups, or a group has no others.
    """
    if group_size < 2:
        raise ValueError(
            f"the baseline is to be the others' of a group, but group_size={group_size}: "
            "make groups of at least 2"
        )
    # The others are summed without the row: subtracting it from all would lose them beside a huge one.
    others = 1 - torch.eye(group_size, dtype=values.dtype, device=values.device)
    return (in_groups(values, group_size) @ others).flatten() / (group_size - 1)


def group_std(values: Tensor, group_size: int) -> Tensor:
    """The sample standard deviation of each group, at each of its rows; 0 of one alone. (N,) -> (N,)

    Raises:
        ValueError: N is not a whole number of groups.
    """
    if group_size == 1:
        return torch.zeros_like(values)
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
