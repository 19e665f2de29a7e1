"""DAPO: Yu et al. 2025, arXiv 2503.14476.

It differs from GRPO by a larger upper bound of the clip ("clip-higher"), a mean over tokens,
resampling of groups whose rewards are all equal ("dynamic sampling"), a penalty on completions near
the length limit ("overlong"), and no KL term.
"""

import threading
from collections.abc import Callable
from operator import not_
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt

from rapid.algorithms.base import GroupRelative, Parameters, PlotStyle
from rapid.algorithms.groups import Tensor, standardize
from rapid.algorithms.means import token_mean
from rapid.algorithms.ratios import clipped_surrogate, compute_clip_metrics


class DapoParameters(Parameters):
    epsilon_low: float = Field(
        gt=0, lt=1, title="clip below", description="token ratios are clipped below 1 - epsilon_low"
    )
    epsilon_high: PositiveFloat | None = Field(
        title="clip above",
        description="token ratios are clipped above 1 + epsilon_high; null: 1 + epsilon_low",
    )
    rounds: PositiveInt = Field(
        title="rounds of sampling",
        description="largest number of sampling rounds; then groups of equal rewards are kept",
    )
    overlong_buffer: float = Field(
        gt=0,
        lt=1,
        title="overlong share",
        description="completions that end in this last share of the length limit are penalized",
    )
    overlong_filtering: bool = Field(
        False,
        exclude_if=not_,  # not in a run's spec if False, so that runs without the field stay valid
        description="leave completions that reach the length limit out of the loss",
    )


def dapo_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    epsilon_low: float,
    epsilon_high: float | None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clipped token ratios, averaged over the tokens of the batch: Yu et al. 2025, eq. 8.

    Args:
        logp, behavior_logp, mask, rewards, group_size: see `LossInputs`.
        epsilon_low, epsilon_high: token ratios are clipped to [1 - epsilon_low, 1 + epsilon_high].
            If epsilon_high is None, it is epsilon_low.

    Returns:
        The loss (0-d), a mean over all tokens, and metrics, each 0-d: `clip_fraction` (share of
        tokens that are clipped) and `clip_low` (share of tokens that are clipped at
        1 - epsilon_low).

    Raises:
        ValueError: N is not a whole number of groups.
    """
    advantages = standardize(rewards, group_size)
    high = epsilon_low if epsilon_high is None else epsilon_high
    token_loss, is_clipped = clipped_surrogate(logp - behavior_logp, advantages, epsilon_low, high)
    return token_mean(token_loss, mask), compute_clip_metrics(is_clipped, advantages, mask)


class Dapo(GroupRelative):
    name = "dapo"
    label = "DAPO"
    plot_style = PlotStyle("#CC79A7", "D", (0, (1, 1.2)))
    parameters = DapoParameters
    loss_function = staticmethod(dapo_loss)
    config_field_names = {  # noqa: RUF012
        "epsilon_low": "epsilon",
        "rounds": "dynamic_sampling_rounds",
        "overlong_filtering": "mask_truncated_completions",
    }
    defaults = {"overlong_buffer": 0.2}  # noqa: RUF012
    mean_over = metrics_over = "token"
    scale_rewards = "group"

    def get_sampling_rounds(self, settings: Any) -> int:
        return settings.rounds

    def build_reward_functions(self, settings: Any, limit: int, reward: Callable) -> list[Callable]:
        from trl.rewards import get_soft_overlong_punishment

        buffer = max(1, round(settings.overlong_buffer * limit))
        return build_reward_and_penalty(reward, get_soft_overlong_punishment(limit, buffer))


def build_reward_and_penalty(reward: Callable, penalty: Callable) -> list[Callable]:
    """Return two functions: the reward, and the penalty, which is None where the reward is None.

    The trainer calls both in the same thread, one after the other. So the penalty function reads
    the rewards of the same completions from the last call of the reward function in its thread.
    """
    last_call = threading.local()

    def accuracy(**columns) -> list[float | None]:
        last_call.rewards = reward(**columns)
        return last_call.rewards

    def overlong(**columns) -> list[float | None]:
        # If `accuracy` exceeds the time limit (`reward_timeout`), this is called in a new thread.
        rewards = getattr(last_call, "rewards", None)
        if rewards is None:
            return [None] * len(columns["completions"])
        pairs = zip(rewards, penalty(**columns), strict=True)
        return [None if score is None else punishment for score, punishment in pairs]

    return [accuracy, overlong]
