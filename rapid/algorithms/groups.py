"""Statistics over groups. A group is the completions of one prompt, in contiguous rows.

Shapes: N completions, K groups, N_k completions per group. All functions raise ValueError if N is
not a multiple of the group size.
"""

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor
else:  # importing torch takes seconds, and is not needed for names and parameters
    Tensor = Any

# Kinds of groups: in an "unequal" group not all rewards are equal, in a "rewarded" group not all
# rewards are 0, and "all" is every group.
GroupKind = Literal["unequal", "rewarded", "all"]
STD_EPSILON = 1e-4  # TRL's value; avoids division by zero in a group of equal rewards


def group_mean(values: Tensor, group_size: int) -> Tensor:
    """Return for each row the mean of its group. (N,) -> (N,)"""
    return to_groups(values, group_size).mean(1).repeat_interleave(group_size)


def group_mean_of_others(values: Tensor, group_size: int) -> Tensor:
    """Return for each row the mean of the other rows of its group. (N,) -> (N,)

    Raises:
        ValueError: a group has one row only.
    """
    if group_size < 2:
        raise ValueError(
            "the baseline is the mean of a group's other completions, but "
            f"group_size={group_size}: set it to at least 2"
        )
    import torch

    # Sum the other rows directly. If a row's huge value were subtracted from the sum of all rows,
    # the digits of smaller values would be lost.
    other_rows = 1 - torch.eye(group_size, dtype=values.dtype, device=values.device)
    return (to_groups(values, group_size) @ other_rows).flatten() / (group_size - 1)


def standardize(rewards: Tensor, group_size: int) -> Tensor:
    """Return (R - mean R) / (standard deviation of R + 1e-4) in each group. (N,) -> (N,)

    In a group of one completion the result is 0.
    """
    groups = to_groups(rewards, group_size)
    std = groups.std(1, keepdim=True) if group_size > 1 else 0
    return ((groups - groups.mean(1, keepdim=True)) / (std + STD_EPSILON)).flatten()


def active_groups(kind: GroupKind, rewards: Tensor, group_size: int) -> Tensor:
    """Return for each group whether it is of this kind. (N,) rewards -> (K,) bool"""
    groups = to_groups(rewards, group_size)
    if kind == "rewarded":
        return (groups != 0).any(1)
    unequal = (groups != groups[:, :1]).any(1)
    return unequal if kind == "unequal" else unequal | True  # "all": True for each group


def to_groups(values: Tensor, group_size: int) -> Tensor:
    """Return the values with one row for each group. (N,) -> (K, N_k)"""
    if len(values) % group_size:
        raise ValueError(f"{len(values)} completions cannot be divided into groups of {group_size}")
    return values.view(-1, group_size)  # (K, N_k)
