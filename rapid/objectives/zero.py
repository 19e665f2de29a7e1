"""Groups that contribute exactly nothing to an objective's gradient."""

import torch
from torch import Tensor

from rapid.objectives.groups import in_groups


def contributes(
    objective: str,
    rewards: Tensor,
    group_size: int,
    *,
    on_policy: bool,
    eta: float = torch.inf,
    beta: float = 0.0,
    baseline: str = "group",
    weighted: bool = True,
) -> Tensor:
    """Which groups have a gradient that may differ from zero. (N,) -> (K,) bool

    1. Rewards that are all equal have no advantage in pg, grpo and dapo (run, they would get the rounding
       of their mean for one); a KL term is never zero.
    2. rapid weighs its baseline: off-policy only rewards that are all 0 give advantages of 0. On the
       policy's own completions (w = 1, not clipped) rewards that are all equal do. Without weights that
       is always so; without a baseline never.

    Args:
        objective: "rapid", "pg", "grpo" or "dapo".
        rewards: (N,); groups are contiguous rows.
        on_policy: the completions were sampled by the policy as it is now.
        eta: the bound of rapid's weights.
        beta: coefficient of the KL term.
        baseline, weighted: rapid's, see `rapid_loss`.

    Raises:
        ValueError: N is not a whole number of groups.
    """
    groups = in_groups(rewards, group_size)
    equal = (groups == groups[:, :1]).all(1)
    if beta:
        return torch.ones_like(equal)
    cancel = (on_policy and eta >= 1) or not weighted  # equal rewards and their baseline
    if objective == "rapid" and (baseline == "none" or not cancel):
        return (groups != 0).any(1)
    return ~equal
