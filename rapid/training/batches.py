"""Functions for batches. A batch is a dict of tensors with a row per completion.

The tensors of a batch are its columns, by name. Prompts are padded on the left, completions on the
right. Shapes: N completions, K groups, T tokens. See `rapid.training` for terms.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rapid.algorithms.groups import active_groups

Batch = dict[str, Tensor]
# Columns that a model's forward pass reads.
FORWARD_COLUMNS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
# TRL's column of the importance weights that correct vLLM's log-probabilities: (N, T) or (N, 1). At
# padding it is 1.
VLLM_RATIO_COLUMN = "importance_sampling_ratio"


class RecentRows(torch.utils.data.Dataset):
    """A dataset that caches the `count` rows that it loaded last.

    transformers' Trainer reads the rows of an inference batch again in each step on this batch.
    """

    def __init__(self, dataset, count: int):
        self._dataset, self._count = dataset, count
        self._rows: dict[int, dict] = {}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> dict:
        if index not in self._rows:
            if len(self._rows) == self._count:  # drop the oldest row
                del self._rows[next(iter(self._rows))]
            self._rows[index] = self._dataset[index]
        return self._rows[index]


def shuffle_endlessly(dataset, seed: int) -> Iterator[int]:
    """Yield a dataset's indices endlessly, in a new random order for each pass over the dataset.

    The order follows from the seed, and is the same in all processes.
    """
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(len(dataset), generator=generator).tolist()


def loss_mask(batch: Batch) -> Tensor:
    """Return the loss mask, (N, T): 1 for tokens that the policy sampled, else 0.

    It is 0 for padding and for the outputs of tools.
    """
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def pad_rows(rows: list[Tensor], batch: Batch) -> Tensor:
    """Return rows, (T,) each, as a column (N, T) as wide as completions, padded with 0 or cut."""
    column = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    missing = batch["completion_ids"].size(1) - column.size(1)
    return torch.nn.functional.pad(column, (0, missing))  # a negative number cuts


def add_rewards(rewards: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums over reward functions. (N, functions), (functions,) -> (N,)

    Missing rewards (NaN) are left out. If all rewards of a completion are missing, so is its sum.
    """
    sums = (rewards * weights.to(rewards.device)).nansum(1)
    return sums.masked_fill(rewards.isnan().all(1), torch.nan)


def select_rows(batch: Batch, index: slice | Tensor) -> Batch:
    """Return the rows of a batch at an index."""
    return {name: value[index] for name, value in batch.items()}


def split_mini_batches(batch: Batch, steps: int) -> list[Batch]:
    """Split an inference batch into `steps` mini-batches of consecutive rows.

    Prompts are in random order already, so that a mini-batch is a random sample. Its column `row`,
    (N_step,), numbers its rows: 0, ..., N_step - 1.
    """
    size = len(batch["completion_ids"]) // steps
    row = torch.arange(size, device=batch["completion_ids"].device)
    starts = range(0, steps * size, size)
    return [select_rows(batch, slice(start, start + size)) | {"row": row} for start in starts]


# Groups -------------------------------------------------------------------------------------------


def mark_graded(batch: Batch, group_size: int) -> Batch:
    """Add `graded`, (N,) bool: False for all rows of a group in which a reward is NaN (missing).

    Rewards and accuracies (rewards by the first reward function) of such a group are set to 0, and
    must not be used. In other groups too an accuracy may be NaN, if other functions gave a reward.
    """
    is_graded = ~batch["rewards"].view(-1, group_size).isnan().any(1)
    graded = is_graded.repeat_interleave(group_size)
    columns = {name: batch[name].masked_fill(~graded, 0) for name in ("rewards", "accuracy")}
    return batch | columns | {"graded": graded}


def find_groups_with_signal(batch: Batch, group_size: int, signal_column: str) -> Tensor:
    """Return for each group whether its values in a column differ. (K,) bool

    A group for which the first reward function returned None, as for a prompt of another task, has
    no accuracies. Its rewards are then compared in place of them.

    Args:
        signal_column: "rewards" or "accuracy".
    """
    values = batch[signal_column]
    is_missing = values.view(-1, group_size).isnan().any(1).repeat_interleave(group_size)
    values = torch.where(is_missing, batch["rewards"], values)
    return active_groups("unequal", values, group_size)


def group_widths(batch: Batch, group_size: int) -> list[tuple[int, int]]:
    """Return for each group the number of tokens of its prompt and of its longest completion."""
    masks = batch["prompt_mask"], batch["completion_mask"]
    longest = [mask.sum(1).view(-1, group_size).amax(1).tolist() for mask in masks]
    return list(zip(*longest, strict=True))


def get_group_rows(groups: Tensor, group_size: int) -> Tensor:
    """Return the row indices of groups, given the groups' indices. (K,) -> (K * group_size,)"""
    return (groups[:, None] * group_size + torch.arange(group_size).to(groups)).flatten()


def select_groups(batch: Batch, groups: Sequence[int], group_size: int, trim: bool) -> Batch:
    """Return the rows of the groups with these indices.

    Args:
        trim: remove the token positions that are padding in all of these rows.
    """
    index = torch.tensor(groups, device=batch["completion_ids"].device)
    selected = select_rows(batch, get_group_rows(index, group_size))
    return trim_padding(selected) if trim else selected


def trim_padding(batch: Batch) -> Batch:
    """Return a batch without the token positions that are padding in all of its rows.

    Completions stay at least two tokens wide, because with DDP all processes have to call the model
    equally often. If a prompt is computed once for its group, this call already gives the
    log-probabilities of the first token, so completions of one token need no second call.
    """
    prompt = int(batch["prompt_mask"].sum(1).max())
    completion = max(2, int(batch["completion_mask"].sum(1).max()))
    columns = {}
    for name, value in batch.items():
        if value.dim() == 2:
            first = value.size(1) - prompt if name.startswith("prompt") else 0
            last = value.size(1) if name.startswith("prompt") else completion
            value = value[:, first:last]
        columns[name] = value
    return columns


def replace_groups(
    batch: Batch, groups: Tensor, new_batch: Batch, group_size: int, pad_id: int, signal_column: str
) -> Batch:
    """Replace groups of `batch` by the groups of `new_batch` that have signal.

    If there are fewer of these than `groups`, only the first of `groups` are replaced. The narrower
    of the two batches is padded to the width of the other.

    Args:
        groups: indices of the groups of `batch` to be replaced.
        new_batch: groups of other prompts.
        signal_column: the column whose values differ in a group with signal: "rewards" or
            "accuracy".
    """
    has_signal = find_groups_with_signal(new_batch, group_size, signal_column)
    replacements = has_signal.nonzero().flatten()[: len(groups)]
    old_rows = get_group_rows(groups[: len(replacements)], group_size)
    new_rows = get_group_rows(replacements, group_size)
    columns = {}
    for name, value in batch.items():
        new_value = new_batch[name][new_rows]
        if value.dim() == 2:
            width = max(value.size(1), new_value.size(1))
            value = pad_width(value, width, name, pad_id)
            new_value = pad_width(new_value, width, name, pad_id)
        columns[name] = value.index_copy(0, old_rows, new_value)
    return columns


def pad_width(values: Tensor, width: int, name: str, pad_id: int) -> Tensor:
    """Pad (N, T) to (N, width): prompts on the left, completions on the right."""
    missing = width - values.size(1)
    sides = (missing, 0) if name.startswith("prompt") else (0, missing)
    return torch.nn.functional.pad(values, sides, value=get_padding_value(name, pad_id))


def get_padding_value(name: str, pad_id: int) -> int:
    """Return a column's padding: `pad_id` for token ids, 1 for `VLLM_RATIO_COLUMN`, else 0."""
    return pad_id if name.endswith("_ids") else int(name == VLLM_RATIO_COLUMN)
