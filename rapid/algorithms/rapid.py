"""RAPID's importance-weighted group-relative policy gradient: paper, section 3.4.

This file departs from the paper's text in two points:
1. The clipped weight of eq. 5 is min{w, eta}. The paper prints max, which would raise every small
   weight to eta. But the paper also says that clipping prevents large weights, and that about 5 %
   of the weights are clipped.
2. The leave-one-out baseline divides by N_k - 1, which makes it an unbiased estimate of the value V
   of the prompt. The paper prints N_k, which shrinks the baseline by (N_k - 1) / N_k. The gradient
   is unbiased with either.
"""

import math
from functools import partial
from operator import eq, not_
from typing import Any, Literal

from pydantic import Field, PositiveInt

from rapid.algorithms.base import Algorithm, Parameters, PlotStyle
from rapid.algorithms.groups import (
    GroupKind,
    Tensor,
    active_groups,
    group_mean,
    group_mean_of_others,
)

Clip = Literal["advantage", "both", "nowhere"]
Baseline = Literal["group", "others", "none"]
EqualGroups = Literal["kept", "reinforced", "skipped"]

# Upper bound of log w, which bounds w by 1.2e26. Without it w could overflow to infinity, and
# infinity times a reward of 0 is NaN.
MAX_LOG_WEIGHT = 60.0
# The functions that compute the paper's V from weighted rewards, by `baseline`. (N,) -> (N,)
BASELINES = {
    "group": group_mean,
    "others": group_mean_of_others,
    "none": lambda weighted, group_size: weighted.new_zeros(weighted.shape),
}


class RapidParameters(Parameters):
    eta: float = Field(
        gt=0,
        title="eta",
        description="Importance weights are clipped to at most eta.",
    )
    clip: Clip = Field(
        title="weights clipped in",
        description='Where importance weights are clipped: "advantage" clips them in the advantage '
        'only, as in Algorithm 1; "both" also clips the weight that multiplies the advantage; '
        '"nowhere" does not clip.',
    )
    baseline: Baseline = Field(
        "group",
        description='"group" is the weighted mean reward of the completion\'s group (Algorithm '
        '1); "others" leaves out the completion itself, so that the gradient is unbiased; '
        '"none" is no baseline.',
    )
    weighted: bool = Field(
        True, description="False sets all importance weights to 1, for ablations."
    )
    # Parameters of the study of the baseline (docs/baseline.md). `exclude_if`: a parameter at its
    # default is not written to a run's spec.
    baseline_scale: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        exclude_if=partial(eq, 1.0),
        description="Factor of the baseline, for ablations: 0 is no baseline.",
    )
    positive_only: bool = Field(
        False,
        exclude_if=not_,
        description="True sets negative advantages to 0, for ablations: no completion is made less "
        "probable.",
    )
    equal_groups: EqualGroups = Field(
        "kept",
        exclude_if=partial(eq, "kept"),
        description="What happens to groups whose rewards are all equal, for ablations. "
        '"reinforced" takes their rewards as advantages, without a baseline; "skipped" sets their '
        'advantages to 0; "kept" treats them like all other groups.',
    )


class RapidSection(RapidParameters):
    """The parameters of the loss, and the H of the run that `dvc exp show` shows."""

    H: PositiveInt = Field(
        description="optimizer steps per inference batch, of the run that `dvc exp show` compares"
    )


def compute_advantages(
    rewards: Tensor,
    weight: Tensor | float,
    group_size: int,
    baseline: Baseline = "group",
    baseline_scale: float = 1.0,
    positive_only: bool = False,
    equal_groups: EqualGroups = "kept",
) -> Tensor:
    """Return the advantages R - baseline_scale * V. `baseline` computes V from weight * R.

    `equal_groups` and `positive_only` then change the advantages.

    Args:
        rewards: (N,) R.
        weight: (N,), or a number: the importance weights in the baseline.
        group_size, baseline, baseline_scale, positive_only, equal_groups: see `RapidParameters`.

    Returns:
        (N,).

    Raises:
        ValueError: N is not a whole number of groups, or `baseline` is "others" with groups of one.
    """
    advantages = rewards - baseline_scale * BASELINES[baseline](weight * rewards, group_size)
    if equal_groups != "kept":
        unequal = active_groups("unequal", rewards, group_size).repeat_interleave(group_size)
        without_baseline = rewards if equal_groups == "reinforced" else rewards.new_zeros(())
        advantages = advantages.where(unequal, without_baseline)
    return advantages.clamp(min=0) if positive_only else advantages


def rapid_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    eta: float,
    clip: Clip = "advantage",
    baseline: Baseline = "group",
    weighted: bool = True,
    baseline_scale: float = 1.0,
    positive_only: bool = False,
    equal_groups: EqualGroups = "kept",
) -> tuple[Tensor, dict[str, Tensor]]:
    """Off-policy policy gradient (eq. 3) with the clipped importance-weighted advantage (eq. 5).

        grad J = 1/N sum_n w_n A_n grad log pi(y_n | x_n)
        w_n    = pi(y_n | x_n) / mu(y_n | x_n), the product of the token ratios
        A_n    = R_n - 1/N_k sum over n's group of min{w_n', eta} R_n'

    Weights and advantages have no gradient. With pi = mu this is `pg_loss`. The defaults are those
    of Algorithm 1; each other parameter changes one part of it.

    Args:
        logp: (N, T) log pi of the sampled tokens, nats; carries the gradient.
        behavior_logp: (N, T) log mu of the same tokens, under the policy that sampled them.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,) R_n.
        group_size: N_k, completions of one prompt; groups are contiguous rows.
        eta, clip, baseline, weighted, baseline_scale, positive_only, equal_groups: see
            `RapidParameters`. With an eta of `inf` no weight is clipped.

    Returns:
        The loss (0-d), a mean over the N completions, and metrics, 0-d each: `staleness` (mean
        |log min(w, eta)|, nats), `clip_fraction` (share of w above eta) and `weight` (mean w). The
        metrics use w = pi / mu also if `weighted` is False.

    Raises:
        ValueError: N is not a whole number of groups, or `baseline` is "others" with groups of one.
    """
    completion_logp = (logp * mask).sum(1)  # (N,) log pi(y_n | x_n)
    log_weight = (completion_logp - (behavior_logp * mask).sum(1)).detach()  # (N,)
    weight = log_weight.clamp(max=MAX_LOG_WEIGHT).exp()
    clipped = weight.clamp(max=eta)
    gradient_weight = clipped if clip == "both" else weight
    advantage_weight = weight if clip == "nowhere" else clipped
    if not weighted:
        gradient_weight = advantage_weight = weight.new_ones(weight.shape)

    advantages = compute_advantages(
        rewards,
        advantage_weight,
        group_size,
        baseline,
        baseline_scale,
        positive_only,
        equal_groups,
    )
    loss = -(gradient_weight * advantages * completion_logp).mean()
    metrics = {
        "staleness": log_weight.clamp(max=math.log(eta)).abs().mean(),
        "clip_fraction": (weight > eta).to(weight.dtype).mean(),
        "weight": weight.mean(),
    }
    return loss, metrics


class Rapid(Algorithm):
    name = "rapid"
    label = "RAPID"
    plot_style = PlotStyle("#D55E00", "v", "-")
    parameters = RapidParameters
    section = RapidSection
    loss_function = staticmethod(rapid_loss)
    defaults = {"eta": 2.0, "clip": "advantage"}  # noqa: RUF012
    h_in_name = "required"
    has_weighted_baseline = True

    @property
    def hyperparameter_rows(self) -> dict[str, str]:
        return super().hyperparameter_rows | {"H": "H"}

    def get_plot_style(self, h: int) -> PlotStyle:
        """Return the style of a line with this H; styles repeat after four powers of 2."""
        plot_styles = [
            self.plot_style,
            PlotStyle("#E69F00", "P", (0, (5, 1))),
            PlotStyle("#8A3B00", "*", (0, (2, 1))),
            PlotStyle("#B8860B", "X", (0, (3, 1, 1, 1))),
        ]
        return plot_styles[h.bit_length() % len(plot_styles)]

    def get_loss_parameters(self, params: Any) -> RapidParameters:
        return RapidParameters(**params.rapid.model_dump(exclude={"H"}))  # H is in a run's name

    def get_gradient_group_kind(self, settings: Any, on_policy: bool) -> GroupKind:
        """Return the kind of groups that may have a gradient.

        A group of equal rewards has advantages of 0 if its baseline is the mean reward, and if its
        weights are all 1: on-policy with eta >= 1, or with `weighted=False`. Otherwise the baseline
        differs from the rewards, and only groups whose rewards are all 0 have no gradient.
        """
        if settings.equal_groups == "skipped":
            return "unequal"
        weights_are_one = (on_policy and settings.eta >= 1) or not settings.weighted
        baseline_equals_rewards = (
            weights_are_one
            and settings.baseline != "none"
            and settings.baseline_scale == 1
            and settings.equal_groups == "kept"
        )
        return "unequal" if baseline_equals_rewards else "rewarded"

    def depends_on_group_weights(self, settings: Any) -> bool:
        return settings.weighted and settings.baseline != "none" and settings.baseline_scale > 0

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        # On-policy all weights are 1, and clipping makes them min(1, eta).
        weight = 1 if settings.clip == "nowhere" or not settings.weighted else min(settings.eta, 1)
        return compute_advantages(
            rewards,
            weight,
            group_size,
            settings.baseline,
            settings.baseline_scale,
            settings.positive_only,
            settings.equal_groups,
        )
