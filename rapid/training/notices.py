"""Warnings about runs that learn nothing, or not what was meant; each is given once."""

import logging
from collections.abc import Callable, Sequence

from transformers import TrainerCallback

from rapid.algorithms.groups import active_groups
from rapid.algorithms.means import completion_mean
from rapid.training.batches import VLLM_RATIO_COLUMN, Batch, loss_mask
from rapid.training.refusals import describe_sample

logger = logging.getLogger(__name__)

# A warning is given if no group (the completions of a prompt) has rewards to learn from in at least
# MIN_BATCHES consecutive inference batches (completions sampled at once) with at least MIN_GROUPS
# groups in all. In fewer groups, rewards are often equal by chance if the policy seldom solves a
# problem.
MIN_BATCHES, MIN_GROUPS = 3, 16
EXAMINED_PROMPTS = 32  # largest number of prompts that are rendered to find unread keys
EQUAL_REWARDS_ADVICE = (
    "Check the reward function with a completion that deserves a reward. If it is right, "
    "use prompts that the model sometimes solves, or a larger num_generations"
)
NOTICES = {
    "keys": (
        "the chat template does not use {keys} of messages: {count} prompts have the same "
        "text without these keys, so the policy never sees the values. Rename the keys to "
        "those that the template uses, remove them, or set another chat template"
    ),
    "context": (
        "a prompt has {length} tokens, and max_completion_length is {limit}, so completions may go "
        "beyond the {context} tokens for which the model was made. Set max_completion_length to at "
        "most {room}, or shorten prompts"
    ),
    "lengths": (
        "all {count} completions were cut off at max_completion_length={limit}{effect}. "
        "Raise it; if completions never end, check whether the model was trained to end "
        "with the tokenizer's eos_token"
    ),
    "graded": (
        "each group of the {count} completions has one that was not graded{effect}. The first is a "
        "completion of {sample}"
    ),
    "rewards": (
        f"in the last {{batches}} inference batches ({{groups}} groups) {{equal}}, so "
        f"nothing is learned. {EQUAL_REWARDS_ADVICE}"
    ),
    "importance": (
        "vllm_importance_sampling_mode={mode!r} and clip_max={cap} mask all {count} "
        "completions, because vLLM's log-probabilities are too far from the policy's: "
        "loss and gradient are 0. Run vLLM in the policy's precision, raise "
        "vllm_importance_sampling_clip_max, or set the mode to 'token_truncate'"
    ),
}


class Notices(TrainerCallback):
    """Logs warnings of a run, each at most once.

    Args:
        config: the run's RapidConfig.
        is_main: whether this is the process that logs.
    """

    def __init__(self, config, is_main: bool):
        self._config, self._is_main = config, is_main
        # Keys of NOTICES that were logged, and "messages" after the first `check_messages`.
        self._topics: set[str] = set()
        # Since the last inference batch in which any group had rewards to learn from: the number of
        # batches and of their groups, and the smallest and the largest reward of each batch.
        self._batches = self._groups = 0
        self._rewards: set[float] = set()
        self._has_learned = False  # whether any group has had rewards to learn from
        self._first_step = 0  # the step from which the run was resumed

    def _warn(self, topic: str, step: int, **values: object) -> None:
        if self._is_main and topic not in self._topics:
            message = NOTICES[topic].format(**values)
            logger.warning("step %d: %s. This warning is given once.", step, message)
        self._topics.add(topic)

    def check_messages(
        self, step: int, prompts: Sequence[list[dict]], render: Callable[[list[dict]], str]
    ) -> None:
        """Warn about keys of messages that the chat template does not read; only in the first call.

        `render` applies the chat template to the messages of a prompt.
        """
        if "messages" in self._topics:
            return
        self._topics.add("messages")
        # At most EXAMINED_PROMPTS evenly spaced prompts.
        examined = prompts[:: -(-len(prompts) // EXAMINED_PROMPTS)]
        if self._is_main and (keys := find_unread_keys(examined, render)):
            self._warn("keys", step, keys=", ".join(map(repr, keys)), count=len(examined))

    def check_context(self, step: int, length: int, context: float) -> None:
        """Warn if completions of a prompt of `length` tokens may go beyond the model's context."""
        limit = self._config.max_completion_length
        if limit and length + limit > context:
            room = context - length
            self._warn("context", step, length=length, limit=limit, context=context, room=room)

    def check_lengths(self, step: int, clipped_ratio: float, count: int) -> None:
        """Warn if all `count` completions were cut off at the length limit."""
        if clipped_ratio == 1:
            masked = self._config.mask_truncated_completions
            effect = ", and nothing is learned from them" if masked else ""
            limit = self._config.max_completion_length
            self._warn("lengths", step, count=count, limit=limit, effect=effect)

    def check_graded(self, step: int, batch: Batch, prompt) -> None:
        """Warn if no group of the batch was graded as a whole; `prompt` is that of the first."""
        if not batch["graded"].any():
            count, sample = len(batch["graded"]), describe_sample(prompt)
            effect = "" if self._config.uses_trl_loss else ", so nothing is learned from them"
            self._warn("graded", step, count=count, effect=effect, sample=sample)

    def check_rewards(self, step: int, batch: Batch, group_size: int) -> None:
        """Warn if no group of the last inference batches has rewards to learn from.

        These are different rewards. If the kind of the algorithm's groups is "rewarded", as for
        RAPID without a baseline, they are also equal rewards other than 0.
        """
        rewards, config = batch["rewards"][batch["graded"]], self._config
        kind = config.algorithm.get_gradient_group_kind(
            config.settings, on_policy=not config.use_rollout_logps
        )
        if active_groups(kind if kind == "rewarded" else "unequal", rewards, group_size).any():
            self._batches = self._groups = 0
            self._rewards, self._has_learned = set(), True
        elif len(rewards):
            self._batches += 1
            self._groups += len(rewards) // group_size
            self._rewards |= {rewards.min().item(), rewards.max().item()}
        if self._batches >= MIN_BATCHES and self._groups >= MIN_GROUPS:
            counts = {"batches": self._batches, "groups": self._groups}
            self._warn("rewards", step, equal=self._describe_equal_rewards(), **counts)

    def check_importance(self, step: int, batch: Batch) -> dict[str, float]:
        """Warn if the correction of vLLM's log-probabilities masks all tokens.

        Returns:
            A metric: the masked share of tokens, averaged over completions; {} if there is no
            correction.
        """
        if VLLM_RATIO_COLUMN not in batch:
            return {}
        mask, is_masked = loss_mask(batch), batch[VLLM_RATIO_COLUMN] == 0
        if mask.any() and not (mask * ~is_masked).any():
            mode = self._config.vllm_importance_sampling_mode
            cap = self._config.vllm_importance_sampling_clip_max
            self._warn("importance", step, mode=mode, cap=cap, count=len(mask))
        return {f"sampling/{VLLM_RATIO_COLUMN}/masked": completion_mean(is_masked, mask).item()}

    def on_train_begin(self, args, state, control, **_):
        self._first_step = state.global_step

    def on_train_end(self, args, state, control, **_):
        """Warn if no group had rewards to learn from in the whole run.

        Of the part before a resume, only different rewards are known.
        """
        has_learned = self._has_learned or any(row.get("rapid/signal") for row in state.log_history)
        if self._is_main and self._batches and not has_learned:
            batches = "all of its inference batches"
            if self._first_step:
                batches += f" since step {self._first_step}"
            logger.warning(
                "step %d: the run has ended, and nothing was learned: %s in %s. %s.",
                state.global_step,
                self._describe_equal_rewards(),
                batches,
                EQUAL_REWARDS_ADVICE,
            )

    def _describe_equal_rewards(self) -> str:
        if len(self._rewards) == 1:
            return f"every reward was {next(iter(self._rewards)):g}"
        return "all rewards of each group were equal"


def find_unread_keys(
    prompts: Sequence[list[dict]], render: Callable[[list[dict]], str]
) -> list[str]:
    """Return the keys of messages, other than role and content, that change no rendered prompt.

    Each key is removed twice: from messages with all keys, and from messages with this key alone,
    since a template may read a key only if another key is missing. A key also counts as read if a
    prompt cannot be rendered without it. A value of None counts as missing, as in datasets.
    """
    messages = [message for prompt in prompts for message in prompt]
    keys = {key for message in messages for key in message if message[key] is not None}
    keys -= {"role", "content"}
    return sorted(
        key
        for key in keys
        if not any(_is_key_read(key, prompt, keys, render) for prompt in prompts)
    )


def _is_key_read(key: str, prompt: list[dict], keys: set[str], render: Callable) -> bool:
    """Return whether removing a key changes a rendered prompt: see `find_unread_keys`."""
    if not any(message.get(key) is not None for message in prompt):
        return False
    try:
        if render(prompt) != render(_remove_keys({key}, prompt)):
            return True
        with_this_key = _remove_keys(keys - {key}, prompt)
        return render(with_this_key) != render(_remove_keys(keys, prompt))
    except Exception:  # a template may raise any error if a key is missing
        return True


def _remove_keys(keys: set[str], prompt: list[dict]) -> list[dict]:
    return [{k: v for k, v in message.items() if k not in keys} for message in prompt]
