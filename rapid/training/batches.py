"""Operations on the sampled batch: a dict of tensors whose rows are completions, groups contiguous.

inference batch  H mini-batches; sampled at once
mini-batch       N_step completions, whole groups; one optimizer step

`rapid.training.micro_batches` cuts a mini-batch into what is run at a time.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rapid.algorithms.groups import active_groups

Batch = dict[str, Tensor]
FORWARD_COLUMNS = (
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
)  # what a model sees
RATIO = "importance_sampling_ratio"  # of TRL's, (N, T) or (N, 1): 1 where there is nothing to weigh


class RecentRows(torch.utils.data.Dataset):
    """A dataset whose last `count` rows stay decoded, for those who ask for them again."""

    def __init__(self, dataset, count: int):
        self._dataset, self._count = dataset, count
        self._rows: dict[int, dict] = {}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> dict:
        if index not in self._rows:
            if len(self._rows) == self._count:
                del self._rows[next(iter(self._rows))]
            self._rows[index] = self._dataset[index]
        return self._rows[index]


def shuffle_endlessly(dataset, seed: int) -> Iterator[int]:
    """Yield a dataset's indices for ever, each time in another order: the same in all processes."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(len(dataset), generator=generator).tolist()


def loss_mask(batch: Batch) -> Tensor:
    """Return which tokens the policy sampled, 1 or 0, (N, T): not what tools answered."""
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def select_rows(batch: Batch, index: slice | Tensor) -> Batch:
    """Return some completions of a batch."""
    return {name: value[index] for name, value in batch.items()}


def split_mini_batches(batch: Batch, steps: int) -> list[Batch]:
    """Split an inference batch into `steps` mini-batches, in order; `row` is (0, ..., N_step - 1).

    Prompts are in random order already: consecutive groups are a random mini-batch (Algorithm 1).
    """
    size = len(batch["completion_ids"]) // steps
    row = torch.arange(size, device=batch["completion_ids"].device)
    starts = range(0, steps * size, size)
    return [select_rows(batch, slice(start, start + size)) | {"row": row} for start in starts]


# Groups -------------------------------------------------------------------------------------------


def mark_graded(batch: Batch, group_size: int) -> Batch:
    """Add `graded`, (N,) bool: False in groups with a completion that has no reward (NaN).

    Such a group says nothing: its rewards and accuracies become 0, and nobody may use them.
    """
    is_graded = ~batch["rewards"].view(-1, group_size).isnan().any(1)
    graded = is_graded.repeat_interleave(group_size)
    columns = {name: batch[name].masked_fill(~graded, 0) for name in ("rewards", "accuracy")}
    return batch | columns | {"graded": graded}


def group_widths(batch: Batch, group_size: int) -> list[tuple[int, int]]:
    """Return the tokens of the prompt and of the longest completion of each group."""
    masks = batch["prompt_mask"], batch["completion_mask"]
    longest = [mask.sum(1).view(-1, group_size).amax(1).tolist() for mask in masks]
    return list(zip(*longest, strict=True))


def group_rows(groups: Tensor, group_size: int) -> Tensor:
    """Return the indices of the rows of some groups. (K,) -> (K * group_size,)"""
    return (groups[:, None] * group_size + torch.arange(group_size).to(groups)).flatten()


def select_groups(batch: Batch, groups: Sequence[int], group_size: int, trim: bool) -> Batch:
    """Return the rows of some groups; trimmed, without the columns that are padding in them all."""
    index = torch.tensor(groups, device=batch["completion_ids"].device)
    selected = select_rows(batch, group_rows(index, group_size))
    return trim_padding(selected) if trim else selected


def trim_padding(batch: Batch) -> Batch:
    """Return a batch without the columns that are padding in all of its rows.

    Two columns of completions stay. One would be computed with the prompt alone, in one call of the
    model instead of two: processes have to make as many, or DDP waits for ever.
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
    batch: Batch, groups: Tensor, fresh: Batch, group_size: int, pad_id: int, signal: str
) -> Batch:
    """Put groups of `fresh` that have signal in the place of as many of `groups`.

    The shorter of the two batches is padded to the longer.

    Args:
        signal: the column of rewards that differ in a group with signal.
    """
    alive = active_groups("unequal", fresh[signal], group_size).nonzero().flatten()[: len(groups)]
    old_rows, new_rows = group_rows(groups[: len(alive)], group_size), group_rows(alive, group_size)
    columns = {}
    for name, value in batch.items():
        new_value = fresh[name][new_rows]
        if value.dim() == 2:
            width = max(value.size(1), new_value.size(1))
            value, new_value = (pad_width(side, width, name, pad_id) for side in (value, new_value))
        columns[name] = value.index_copy(0, old_rows, new_value)
    return columns


def pad_width(values: Tensor, width: int, name: str, pad_id: int) -> Tensor:
    """Pad (N, T) to (N, width): prompts on the left, completions on the right."""
    missing = width - values.size(1)
    sides = (missing, 0) if name.startswith("prompt") else (0, missing)
    return torch.nn.functional.pad(values, sides, value=padding_value(name, pad_id))


def padding_value(name: str, pad_id: int) -> int:
    """Return what fills up a column of this name."""
    return pad_id if name.endswith("_ids") else int(name == RATIO)
