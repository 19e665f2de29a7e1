"""Group-relative policy gradient: paper, section 3.3. The paper's is on-policy.

With H > 1 it is the same plain gradient: stale completions count without importance weights. How
stale they are is a metric then.
"""

from typing import Any

from rapid.algorithms.base import Algorithm, Look, Pass
from rapid.algorithms.groups import Groups, Tensor, group_mean


def pg_loss(
    logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient (eq. 1) with the group mean as baseline (eq. 2), and nothing else.

        grad J = 1/N sum_n A_n grad log pi(y_n | x_n),    A_n = R_n - mean of R over n's group

    Args:
        logp, mask, rewards, group_size: see `rapid.rapid_loss`.

    Returns:
        The loss (0-d), a mean over the N completions, and an empty dict: nothing is clipped.

    Raises:
        ValueError: N is not a whole number of groups.
    """
    advantages = rewards - group_mean(rewards, group_size)  # (N,)
    return -(advantages * (logp * mask).sum(1)).mean(), {}


class Pg(Algorithm):
    name = "pg"
    label = "PG"
    look = Look("#009E73", "^", (0, (4, 1, 1, 1)))

    def gradient_groups(self, settings: Any, on_policy: bool) -> Groups:
        return "unequal"  # equal rewards have no advantage

    def loss(self, settings: Any, given: Pass) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = pg_loss(given.logp, given.mask, given.rewards, given.group_size)
        if given.H > 1:
            log_weight = ((given.logp.detach() - given.behavior_logp) * given.mask).sum(1)  # (N,)
            metrics = {"staleness": log_weight.abs().mean()}
        return loss, metrics
