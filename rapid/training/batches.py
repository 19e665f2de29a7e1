"""Operations on the sampled batch: a dict of tensors whose rows are completions, groups contiguous.

inference batch  H mini-batches; sampled at once
mini-batch       N_step completions, whole groups; one optimizer step
pass             some groups of a mini-batch; one forward and backward pass of one process
torn pass        the same, but each process runs only some rows of it forward and backward
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rapid.algorithms.groups import chosen

Batch = dict[str, Tensor]
FORWARD = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")  # what a model sees
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


def endless(dataset, seed: int) -> Iterator[int]:
    """Yield a dataset's indices for ever, each time in another order: the same in all processes."""
    order = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(len(dataset), generator=order).tolist()


def learned(batch: Batch) -> Tensor:
    """Return which tokens the policy sampled, 1 or 0, (N, T): not what tools answered."""
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def rows(batch: Batch, index: slice | Tensor) -> Batch:
    """Return some completions of a batch."""
    return {name: value[index] for name, value in batch.items()}


def mini_batches(batch: Batch, steps: int) -> list[Batch]:
    """Split an inference batch into `steps` mini-batches, in order.

    Prompts are in random order already: consecutive groups are a random mini-batch (Algorithm 1).
    """
    size = len(batch["completion_ids"]) // steps
    return [rows(batch, slice(start, start + size)) for start in range(0, steps * size, size)]


# Groups -------------------------------------------------------------------------------------------


def with_graded(batch: Batch, group_size: int) -> Batch:
    """Add `graded`, (N,) bool: False in groups with a completion that has no reward (NaN).

    Such a group says nothing: its rewards and accuracies become 0, and nobody may use them.
    """
    whole = ~batch["rewards"].view(-1, group_size).isnan().any(1)
    graded = whole.repeat_interleave(group_size)
    known = {name: batch[name].masked_fill(~graded, 0) for name in ("rewards", "accuracy")}
    return batch | known | {"graded": graded}


def group_widths(batch: Batch, group_size: int) -> list[tuple[int, int]]:
    """Return the tokens of the prompt and of the longest completion of each group."""
    masks = batch["prompt_mask"], batch["completion_mask"]
    longest = [mask.sum(1).view(-1, group_size).amax(1).tolist() for mask in masks]
    return list(zip(*longest, strict=True))


def rows_of(groups: Tensor, group_size: int) -> Tensor:
    """Return the indices of the rows of some groups. (K,) -> (K * group_size,)"""
    return (groups[:, None] * group_size + torch.arange(group_size).to(groups)).flatten()


def take(mini_batch: Batch, groups: Sequence[int], group_size: int, trim: bool) -> Batch:
    """Return the rows of some groups; trimmed, without the columns that are padding in them all.

    Two columns of completions stay. One would be computed with the prompt alone, in one call of the
    model instead of two: processes have to make as many, or DDP waits for ever.
    """
    index = torch.tensor(groups, device=mini_batch["completion_ids"].device)
    piece = rows(mini_batch, rows_of(index, group_size))
    if not trim:
        return piece
    prompt = int(piece["prompt_mask"].sum(1).max())
    completion = max(2, int(piece["completion_mask"].sum(1).max()))
    for name, value in piece.items():
        if value.dim() == 2:
            first = value.size(1) - prompt if name.startswith("prompt") else 0
            last = value.size(1) if name.startswith("prompt") else completion
            piece[name] = value[:, first:last]
    return piece


def replaced(
    batch: Batch, groups: Tensor, fresh: Batch, group_size: int, pad_id: int, signal: str
) -> Batch:
    """Put groups of `fresh` that have signal in the place of as many of `groups`.

    The shorter of the two batches is padded to the longer.

    Args:
        signal: the column of rewards that differ in a group with signal.
    """
    alive = chosen("unequal", fresh[signal], group_size).nonzero().flatten()[: len(groups)]
    old, new = rows_of(groups[: len(alive)], group_size), rows_of(alive, group_size)
    result = {}
    for name, value in batch.items():
        other = fresh[name][new]
        if value.dim() == 2:
            width = max(value.size(1), other.size(1))
            value, other = (widen(side, width, name, pad_id) for side in (value, other))
        result[name] = value.index_copy(0, old, other)
    return result


def widen(values: Tensor, width: int, name: str, pad_id: int) -> Tensor:
    """Pad (N, T) to (N, width): prompts on the left, completions on the right."""
    missing = width - values.size(1)
    sides = (missing, 0) if name.startswith("prompt") else (0, missing)
    return torch.nn.functional.pad(values, sides, value=padding(name, pad_id))


def padding(name: str, pad_id: int) -> int:
    """Return what fills up a column of this name."""
    return pad_id if name.endswith("_ids") else int(name == RATIO)


# Passes -------------------------------------------------------------------------------------------


def passes(
    mini_batch: Batch,
    groups: Sequence[int],
    group_size: int,
    *,
    processes: int,
    process: int,
    size: int,
    budget: int | None,
    least: int = 0,
    alike: bool = False,
) -> list[Batch]:
    """Return the passes of one process, as many as of any other.

    Groups are divided among processes. Where part of a group is enough for each, one torn pass
    divides the completions.

    Args:
        groups: those of the mini-batch to be run.
        size: groups of a pass, in order and untrimmed, if there is no budget.
        budget: padded tokens of a pass.
        least: passes to make even if there is nothing to run.
        alike: put prompts of one length only into a pass, unless it is torn.
    """
    trim = budget is not None
    part = part_of_group(len(groups), group_size, processes)
    if groups and part < group_size:  # less than one group's tokens: within any budget
        piece = with_shares(take(mini_batch, groups, group_size, trim), mini_batch, processes=1)
        return [torn(piece, part, process)]
    widths = group_widths(mini_batch, group_size)
    costs = [sum(width) for width in widths]
    shares = share_out(groups, costs, processes)
    if budget is None:
        size = 1 if alike else size
        plans = [[share[i : i + size] for i in range(0, len(share), size)] for share in shares]
    else:
        plans = [pack(share, widths, group_size, budget, alike) for share in shares]
    made = [
        with_shares(take(mini_batch, some, group_size, trim), mini_batch, processes)
        for some in plans[process]
    ]
    idle = without_weight(take(mini_batch, [costs.index(min(costs))], group_size, trim=True))
    return made + [idle] * (max(least, *map(len, plans)) - len(made))


def part_of_group(groups: int, group_size: int, processes: int) -> int:
    """Return how many completions of one group each process has to run, so that all are run.

    The number divides group_size, so that a process has one prompt. It is group_size where groups
    are not torn.
    """
    least = max(1, -(-groups * group_size // processes))
    return next((part for part in range(least, group_size) if group_size % part == 0), group_size)


def share_out(groups: Sequence[int], costs: Sequence[int], processes: int) -> list[list[int]]:
    """Divide groups among processes, so that the costs of all are about equal.

    The most expensive group goes to the process with the least so far, and so on. `costs` are of
    every group, indexed by it.
    """
    shares: list[list[int]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for group in sorted(groups, key=lambda g: (-costs[g], g)):
        least = loads.index(min(loads))
        shares[least].append(group)
        loads[least] += costs[group]
    return [sorted(share) for share in shares]


def pack(
    groups: Sequence[int],
    widths: Sequence[tuple[int, int]],
    group_size: int,
    budget: int,
    alike: bool,
) -> list[list[int]]:
    """Return passes of groups of like length, each of at most `budget` padded tokens or one group.

    A pass is as wide as its longest prompt and its longest completion together.

    Args:
        alike: put prompts of one length only into a pass.
    """
    packed: list[list[int]] = []
    prompt = completion = 0
    for group in sorted(groups, key=lambda g: (alike * widths[g][0], -sum(widths[g]), g)):
        wider = (max(prompt, widths[group][0]), max(completion, widths[group][1]))
        fits = not alike or widths[group][0] == prompt
        if packed and fits and (len(packed[-1]) + 1) * group_size * sum(wider) <= budget:
            packed[-1].append(group)
            prompt, completion = wider
        else:
            packed.append([group])
            prompt, completion = widths[group]
    return packed


def with_shares(piece: Batch, mini_batch: Batch, processes: int) -> Batch:
    """Add `sequence_share` and `token_share`, 0-d: the part of its mini-batch that a pass is.

    They are parts of the mini-batch's completions and tokens, times the number of processes, whose
    gradients are averaged. Losses that are means over a pass, times its share, sum to the mean over
    the mini-batch. What was left out contributes nothing, and makes no other count for more.
    """
    tokens = learned(piece).sum() / learned(mini_batch).sum().clamp(min=1)
    part = len(piece["completion_ids"]) / len(mini_batch["completion_ids"])
    return piece | {
        "sequence_share": torch.tensor(part * processes, device=tokens.device),
        "token_share": tokens * processes,
    }


def without_weight(piece: Batch) -> Batch:
    """Return a pass that contributes nothing, for a process that must take part in the others'."""
    zero = torch.zeros((), device=piece["completion_ids"].device)
    none = torch.zeros_like(piece["completion_mask"])
    return piece | {"sequence_share": zero, "token_share": zero, "completion_mask": none}


def torn(piece: Batch, part: int, process: int) -> Batch:
    """Add `own_rows`, (part,): those of the pass that a process runs.

    A process for which none is left runs the last, beyond the number of rows: it does not count.
    """
    last = len(piece["completion_ids"]) - 1
    own = torch.arange(process * part, (process + 1) * part, device=piece["completion_ids"].device)
    return piece | {"own_rows": own.clamp(max=last)}


def own_part(piece: Batch) -> Batch:
    """Return what a process runs of a pass: all of it, unless it is torn."""
    if "own_rows" not in piece:
        return piece
    seen = {name: piece[name] for name in (*FORWARD, "tool_mask") if name in piece}
    return rows(seen, piece["own_rows"])
