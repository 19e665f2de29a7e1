"""Group-relative policy gradient: paper, section 3.3.

The paper's algorithm is on-policy. With H > 1 optimizer steps per inference batch the gradient
still has no importance weights, although an earlier policy, the behaviour policy mu, sampled the
completions. With H > 1 there is a metric, `staleness`: the mean over completions of
|log pi(y|x) - log mu(y|x)|, in nats.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from rapid.algorithms.base import GroupRelative, LossInputs, PlotStyle
from rapid.algorithms.groups import Tensor, group_mean
from rapid.algorithms.means import reinforce_loss
from rapid.algorithms.ratios import completion_log_weights


def pg_loss(
    logp: Tensor, mask: Tensor, rewards: Tensor, group_size: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient (eq. 1) with the group mean as baseline (eq. 2).

        grad J = 1/N sum_n A_n grad log pi(y_n | x_n),    A_n = R_n - mean of R over n's group

    Args:
        logp, mask, rewards, group_size: see `LossInputs`.

    Returns:
        The loss (0-d), a mean over the N completions, and an empty dict: nothing is clipped.

    Raises:
        ValueError: N is not a whole number of groups.
    """
    advantages = rewards - group_mean(rewards, group_size)  # (N,)
    return reinforce_loss(logp, mask, advantages), {}


class Pg(GroupRelative):
    name = "pg"
    label = "PG"
    plot_style = PlotStyle("#009E73", "^", (0, (4, 1, 1, 1, 1, 1)))
    loss_function: ClassVar[Callable] = staticmethod(pg_loss)

    def loss(self, settings: Any, tensors: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().loss(settings, tensors)
        if tensors.H > 1:
            log_weight = completion_log_weights(tensors.logp, tensors.behavior_logp, tensors.mask)
            metrics = {"staleness": log_weight.abs().mean()}
        return loss, metrics
