"""The table of completions that `log_completions` prints and saves.

In a terminal, completions are shortened, because they may be long, and control characters are
escaped, because a terminal would obey them. Files and services get the completions unchanged.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partialmethod
from typing import Any
from unittest.mock import patch

from torch import Tensor
from trl import GRPOTrainer
from trl.trainer import grpo_trainer, utils
from typing_extensions import override

from rapid.text import escape_control_chars
from rapid.training import batches
from rapid.training.config import RapidConfig

SHOWN_CHARACTERS = 300  # of a text, at each end
NOT_GRADED = "not graded"


class CompletionsTableTrainer(GRPOTrainer):
    """GRPOTrainer whose table shows the objective's advantages, and each completion once."""

    args: RapidConfig
    _logs: dict[str, Any]
    _has_new_completions = False  # whether any were sampled since the last table

    @override
    def _generate_and_score_completions(self, inputs):
        self._has_new_completions = True
        return super()._generate_and_score_completions(inputs)

    @override
    def log(self, logs, start_time=None):
        """Log metrics, and the table if it has changed.

        TRL prints and saves the table whenever it logs: the same one in each of the steps on an
        inference batch, and once more at the end of training.
        """
        has_changed, self._has_new_completions = self._has_new_completions, False
        shown = patch.object(self, "log_completions", self.log_completions and has_changed)
        printer = patch.object(grpo_trainer, "print_prompt_completions_sample", print_completions)
        with shown, printer:
            super().log(logs, start_time)

    def _log_advantages(self, rewards: Tensor, group_size: int) -> None:
        """Put the objective's on-policy advantages in the table, in place of TRL's.

        `rewards` (N,) are of all processes. The advantages of a group that is not graded are 0.
        """
        columns = {"rewards": rewards, "accuracy": rewards}  # `mark_graded` reads both
        graded = batches.mark_graded(columns, group_size)
        advantages = self.args.algorithm.advantages(
            self.args.settings, graded["rewards"], group_size
        )
        # TRL has appended its own advantages, of which a full deque keeps only the last.
        log = self._logs["advantages"]
        for _ in range(min(len(advantages), len(log))):
            log.pop()
        log.extend((advantages * graded["graded"]).tolist())


def print_completions(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    rewards: Mapping[str, Sequence[float]],
    advantages: Sequence[float],
    step: int,
    num_samples: int | None = None,
    extra: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """Print a table of prompts and completions with TRL's function, made fit for a terminal.

    TRL prints texts in full, but cuts a text without spaces after one line. It prints "nan" for
    the reward of a completion that was not graded. The arguments are those of TRL's function.
    """
    Table = utils.Table  # exists, because TRL prints the table only if rich is installed
    numbers = {
        name: [NOT_GRADED if math.isnan(value) else f"{value:.2f}" for value in column]
        for name, column in {**rewards, "Advantage": advantages}.items()
    }
    extra_columns = {name: _shorten([*column]) for name, column in (extra or {}).items()}
    with patch.object(Table, "add_column", partialmethod(Table.add_column, overflow="fold")):
        utils.print_prompt_completions_sample(
            _shorten([*prompts]),
            _shorten([*completions]),
            rewards={},
            advantages=None,
            step=step,
            num_samples=num_samples,  # type: ignore[arg-type]  # None is TRL's default
            extra=numbers | extra_columns,
        )


def _shorten(entry: Any) -> Any:
    """Return an entry, or a list of entries, with each text shortened and escaped."""
    if isinstance(entry, list):
        return [_shorten(part) for part in entry]
    if isinstance(entry, dict):
        # The arguments of a tool call are JSON: TRL parses them, and prints them escaped.
        return {k: v if k == "arguments" else _shorten(v) for k, v in entry.items()}
    if not isinstance(entry, str):
        return entry
    if left_out := max(0, len(entry) - 2 * SHOWN_CHARACTERS):
        end = SHOWN_CHARACTERS
        entry = f"{entry[:end]} [... {left_out:,} characters ...] {entry[-end:]}"
    return escape_control_chars(entry)
