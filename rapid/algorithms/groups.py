"""Statistics over groups. A group is the completions of one prompt, in contiguous rows.

Shapes: N completions, K groups, N_k completions per group. All functions raise ValueError if N is
not a multiple of the group size.
"""

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor
else:  # importing torch takes seconds, and is not needed for names and parameters
    Tensor = Any

# Kinds of groups: "unequal" have different rewards, "rewarded" have at least one reward that is not
# 0, and "all" is every group.
Groups = Literal["unequal", "rewarded", "all"]
STD_FLOOR = 1e-4  # TRL's value; avoids division by zero in a group of equal rewards


def group_mean(values: Tensor, group_size: int) -> Tensor:
    """Return the mean of each group, at each of its rows. (N,) -> (N,)"""
    return to_groups(values, group_size).mean(1).repeat_interleave(group_size)


def group_mean_of_others(values: Tensor, group_size: int) -> Tensor:
    """Return at each row the mean of the other rows of its group. (N,) -> (N,)

    Raises:
        ValueError: a group has one row only.
    """
    if group_size < 2:
        raise ValueError(
            "the baseline is the mean of a group's other completions, but "
            f"group_size={group_size}: set it to at least 2"
        )
    import torch

    # Sum the other rows directly: a row's huge value, subtracted from the sum of all rows, would
    # cancel the digits of smaller values.
    other_rows = 1 - torch.eye(group_size, dtype=values.dtype, device=values.device)
    return (to_groups(values, group_size) @ other_rows).flatten() / (group_size - 1)


def standardized(rewards: Tensor, group_size: int) -> Tensor:
    """Return rewards minus the group mean, over the group's standard deviation. (N,) -> (N,)

    In a group of one the result is 0.
    """
    groups = to_groups(rewards, group_size)
    std = groups.std(1, keepdim=True) if group_size > 1 else 0
    return ((groups - groups.mean(1, keepdim=True)) / (std + STD_FLOOR)).flatten()


def active_groups(kind: Groups, rewards: Tensor, group_size: int) -> Tensor:
    """Return for each group whether it is of this kind. (N,) -> (K,) bool"""
    groups = to_groups(rewards, group_size)
    if kind == "rewarded":
        return (groups != 0).any(1)
    unequal = (groups != groups[:, :1]).any(1)
    return unequal if kind == "unequal" else unequal | True  # "all": True for each group


def to_groups(values: Tensor, group_size: int) -> Tensor:
    """Return one row for each group. (N,) -> (K, N_k)"""
    if len(values) % group_size:
        raise ValueError(f"{len(values)} completions cannot be divided into groups of {group_size}")
    return values.view(-1, group_size)  # (K, N_k)
