"""GRPO as in the paper's baseline: TRL's loss_type "grpo" with use_bias_correction_kl=False."""

from typing import Any

from pydantic import Field, NonNegativeFloat

from rapid.algorithms.base import Algorithm, Parameters, PlotStyle
from rapid.algorithms.groups import GroupKind, Tensor, standardize
from rapid.algorithms.means import completion_mean, token_mean
from rapid.algorithms.ratios import clipped_surrogate, compute_clip_metrics


class GrpoParameters(Parameters):
    beta: NonNegativeFloat = Field(title="KL coefficient", description="factor of the KL term")
    epsilon: float = Field(
        gt=0,
        lt=1,
        title="clip of the ratio",
        description="token ratios are clipped to [1 - epsilon, 1 + epsilon]",
    )


def grpo_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    reference_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    beta: float,
    epsilon: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clipped token ratios, standardized rewards as advantages, and a KL term.

    Shao et al. 2024 (DeepSeekMath), eq. 3. Each completion contributes the mean over its tokens.

    Args:
        logp, behavior_logp, reference_logp, mask, rewards, group_size: see `LossInputs`.
        beta: coefficient of the KL term, estimated as exp(d) - d - 1, d = reference_logp - logp.
        epsilon: token ratios are clipped to [1 - epsilon, 1 + epsilon].

    Returns:
        The loss (0-d), a mean over the N completions, and metrics, each 0-d: `clip_fraction`
        (share of tokens that are clipped), `clip_low` (share of tokens that are clipped at
        1 - epsilon) and `kl` (nats per token).

    Raises:
        ValueError: N is not a whole number of groups.
    """
    advantages = standardize(rewards, group_size)
    token_loss, is_clipped = clipped_surrogate(logp - behavior_logp, advantages, epsilon, epsilon)
    difference = reference_logp - logp
    kl = difference.exp() - difference - 1  # (N, T)
    metrics = compute_clip_metrics(is_clipped, advantages, mask) | {
        "kl": token_mean(kl.detach(), mask)
    }
    return completion_mean(token_loss + beta * kl, mask), metrics


class Grpo(Algorithm):
    name = "grpo"
    label = "GRPO"
    plot_style = PlotStyle("#0072B2", "o", (0, (9, 2)))
    parameters = GrpoParameters
    loss_function = staticmethod(grpo_loss)
    scale_rewards = "group"
    metrics_over = "token"

    def get_gradient_group_kind(self, settings: Any, on_policy: bool) -> GroupKind:
        # With a KL term every group has a gradient.
        return "all" if settings.beta else "unequal"
