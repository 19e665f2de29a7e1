"""Operations on the sampled batch: a dict of tensors whose rows are completions, groups contiguous."""

import torch
from torch import Tensor

Batch = dict[str, Tensor]


def micro_batches(batch: Batch, steps: int, passes: int) -> list[Batch]:
    """Split an inference batch into `steps` mini-batches of `passes` micro-batches each, in order.

    The prompts of a batch are in random order already, so consecutive groups are a random mini-batch
    (Algorithm 1) and no group is torn apart. A micro-batch is as wide as its own longest prompt and
    completion. It gets `sequence_share` and `token_share`: the part of its mini-batch's completions,
    and of their tokens, that it holds. Losses that are means over a micro-batch, times its share, sum
    to the mean over the mini-batch.
    """
    rows = len(batch["completion_ids"]) // (steps * passes)
    pieces = [
        _trimmed(_rows(batch, slice(start, start + rows)))
        for start in range(0, rows * steps * passes, rows)
    ]
    for step in range(steps):
        mini_batch = pieces[step * passes : (step + 1) * passes]
        tokens = [piece["completion_mask"].sum() for piece in mini_batch]
        total = torch.stack(tokens).sum().clamp(min=1)
        for piece, count in zip(mini_batch, tokens, strict=True):
            piece["sequence_share"] = torch.tensor(1 / passes)
            piece["token_share"] = count / total
    return pieces


def _rows(batch: Batch, rows: slice) -> Batch:
    return {name: value[rows] if value.dim() else value for name, value in batch.items()}


def _trimmed(piece: Batch) -> Batch:
    """Without the columns that are padding in every row: left of all prompts, right of all ends."""
    prompt = int(piece["prompt_mask"].sum(1).max())
    completion = int(piece["completion_mask"].sum(1).max())
    return {
        name: value
        if value.dim() != 2
        else value[:, value.size(1) - prompt :]
        if name.startswith("prompt")
        else value[:, :completion]
        for name, value in piece.items()
    }


def without_signal(rewards: Tensor, group_size: int) -> Tensor:
    """The indices of the groups whose rewards are all equal. (N,) -> (at most N / group_size,)"""
    groups = rewards.view(-1, group_size)
    return (groups == groups[:, :1]).all(1).nonzero().flatten()


def replace_groups(
    batch: Batch, fresh: Batch, groups: Tensor, group_size: int, pad_id: int
) -> Batch:
    """Put the first groups of `fresh` in the place of `batch`'s `groups`, padding either to the longer."""
    rows = (groups[:, None] * group_size + torch.arange(group_size, device=groups.device)).flatten()
    replaced = {}
    for name, old in batch.items():
        new = fresh[name]
        if old.dim() == 0:
            replaced[name] = old
            continue
        if old.dim() == 2:
            padding = pad_id if name.endswith("_ids") else 0
            width = max(old.size(1), new.size(1))
            left = name.startswith("prompt")
            old, new = (_widen(side, width, padding, left) for side in (old, new))
        old = old.clone()
        old[rows] = new[: len(rows)]
        replaced[name] = old
    return replaced


def _widen(values: Tensor, width: int, padding: int, left: bool) -> Tensor:
    missing = width - values.size(1)
    return torch.nn.functional.pad(values, (missing, 0) if left else (0, missing), value=padding)
