"""RAPID's importance-weighted group-relative policy gradient: paper, section 3.4.

Two departures from the paper's text, both forced:
1. The clipped weight of eq. 5 is min{w, eta}. The paper prints max, which would raise every small
   weight to eta; its own account (clipping prevents blow-up, about 5 % are clipped) says min.
2. The leave-one-out baseline divides by N_k - 1, which makes it an unbiased estimate of V. The
   paper prints N_k, which shrinks V by (N_k - 1) / N_k; the gradient is unbiased with either.
"""

import math
from functools import partial
from operator import eq, not_
from typing import Any, Literal

from pydantic import Field, PositiveInt

from rapid.algorithms.base import Algorithm, Look, Parameters
from rapid.algorithms.groups import (
    Groups,
    Tensor,
    active_groups,
    group_mean,
    group_mean_of_others,
)

Clip = Literal["advantage", "both", "nowhere"]
Baseline = Literal["group", "others", "none"]
EqualGroups = Literal["kept", "reinforced", "skipped"]

# Upper bound of log w, for a weight w of 1e26. Without it a weight could overflow to infinity, and
# infinity times a reward of 0 is NaN.
MAX_LOG_WEIGHT = 60.0
# For each `baseline`, the function from weighted rewards, (N,), to the paper's V of each, (N,).
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
        description='Where importance weights are clipped: "advantage" is in the advantage only '
        '(Algorithm 1 to the letter); "both" is also the weight in front of it; '
        '"nowhere" is not at all.',
    )
    baseline: Baseline = Field(
        "group",
        description='"group" is the weighted mean reward of the completion\'s group (Algorithm '
        '1); "others" leaves the completion itself out, which is unbiased; "none" is '
        "no baseline.",
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
        'advantages to 0; "kept" treats them as other groups.',
    )


class RapidSection(RapidParameters):
    """The parameters of the loss, and the H of the run that `dvc exp show` compares."""

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
    """Return the advantages R - baseline_scale * V, where V is the baseline of weight * R.

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

    Weights and advantages are constants of the gradient. With pi = mu this is `pg_loss`. The
    defaults are Algorithm 1; the other parameters switch its parts off or change them, one by one.

    Args:
        logp: (N, T) log pi of the sampled tokens, nats; carries the gradient.
        behavior_logp: (N, T) log mu of the same tokens, under the policy that sampled them.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,) R_n.
        group_size: N_k, completions of one prompt; groups are contiguous rows.
        eta, clip, baseline, weighted, baseline_scale, positive_only, equal_groups: see
            `RapidParameters`. An eta of `inf` clips nothing.

    Returns:
        The loss (0-d), a mean over the N completions, and
        metrics, each 0-d: `staleness` (mean |log min(w, eta)|, nats), `clip_fraction` (share of w
        above eta) and `weight` (mean w). They are computed from pi / mu also if `weighted` is
        False.

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
    look = Look("#D55E00", "v", "-")
    parameters = RapidParameters
    section = RapidSection
    loss_function = staticmethod(rapid_loss)
    defaults = {"eta": 2.0, "clip": "advantage"}  # noqa: RUF012
    H = "required"
    weighs_rewards = True

    @property
    def hyperparameter_rows(self) -> dict[str, str]:
        return super().hyperparameter_rows | {"H": "H"}

    def get_look(self, h: int) -> Look:
        """Return the look for an H: colours, markers and lines repeat after four powers of 2."""
        looks = [
            self.look,
            Look("#E69F00", "P", (0, (5, 1))),
            Look("#8A3B00", "*", (0, (2, 1))),
            Look("#B8860B", "X", (0, (3, 1, 1, 1))),
        ]
        return looks[h.bit_length() % len(looks)]

    def select_objective(self, params: Any) -> RapidParameters:
        return RapidParameters(**params.rapid.model_dump(exclude={"H"}))  # H is in a run's name

    def gradient_groups(self, settings: Any, on_policy: bool) -> Groups:
        """Return which groups may have a gradient.

        Equal rewards have advantages of 0 if the baseline is the mean of their group, and all
        weights are equal too: on-policy (w = 1, not clipped if eta >= 1), or with `weighted=False`.
        Otherwise the baseline differs from the rewards, and the gradient is 0 only in groups whose
        rewards are all 0.
        """
        if settings.equal_groups == "skipped":
            return "unequal"
        weights_are_equal = (on_policy and settings.eta >= 1) or not settings.weighted
        cancels = (
            weights_are_equal
            and settings.baseline != "none"
            and settings.baseline_scale == 1
            and settings.equal_groups == "kept"
        )
        return "unequal" if cancels else "rewarded"

    def compares_weights(self, settings: Any) -> bool:
        return settings.weighted and settings.baseline != "none" and settings.baseline_scale > 0

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        # On-policy all weights are 1 before they are clipped to eta.
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
