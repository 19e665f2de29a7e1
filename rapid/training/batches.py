"""Operations on the sampled batch: a dict of tensors whose rows are completions, groups contiguous.

inference batch  H mini-batches; sampled at once
mini-batch       N_step completions, whole groups; one optimizer step
pass             some groups of a mini-batch; one forward and backward pass of one process
torn pass        the same, but each process runs only some rows of it forward and backward
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

Batch = dict[str, Tensor]
Passes = list[list[int]]  # the groups of each pass
FORWARD = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")  # what a model sees


class Kept(torch.utils.data.Dataset):
    """A dataset whose rows are decoded once, not at each time that they are asked for."""

    def __init__(self, dataset):
        self._dataset = dataset
        self._rows: dict[int, dict] = {}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> dict:
        if index not in self._rows:
            self._rows[index] = self._dataset[index]
        return self._rows[index]


def endless(dataset, seed: int) -> Iterator[dict]:
    """A dataset's rows for ever, pass after pass, each in another order: the same in all processes."""
    order = torch.Generator().manual_seed(seed)
    while True:
        for index in torch.randperm(len(dataset), generator=order).tolist():
            yield dataset[index]


def mini_batches(batch: Batch, steps: int) -> list[Batch]:
    """Split an inference batch into `steps` mini-batches, in order.

    Prompts are in random order already, so consecutive groups are a random mini-batch (Algorithm 1).
    """
    size = len(batch["completion_ids"]) // steps
    return [rows(batch, slice(start, start + size)) for start in range(0, steps * size, size)]


def with_graded(batch: Batch, group_size: int) -> Batch:
    """The batch with `graded`, (N,) bool: False in groups with a completion that has no reward (NaN).

    Such a group says nothing: its rewards and accuracies become 0, and nobody may use them.
    """
    whole = ~batch["rewards"].view(-1, group_size).isnan().any(1)
    graded = whole.repeat_interleave(group_size)
    known = {name: batch[name].masked_fill(~graded, 0) for name in ("rewards", "accuracy")}
    return batch | known | {"graded": graded}


def rows(batch: Batch, index: slice | Tensor) -> Batch:
    """Some completions of a batch; values without rows are kept as they are."""
    return {name: value[index] if value.dim() else value for name, value in batch.items()}


def group_widths(batch: Batch, group_size: int) -> list[tuple[int, int]]:
    """(prompt, longest completion) of each group, in tokens."""
    prompts = batch["prompt_mask"].sum(1).view(-1, group_size).amax(1).tolist()
    completions = batch["completion_mask"].sum(1).view(-1, group_size).amax(1).tolist()
    return list(zip(prompts, completions, strict=True))


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
) -> list[Batch]:
    """The passes of one process, as many as of any other.

    Groups are divided among processes; where part of a group is enough for each, one torn pass divides
    the completions.

    Args:
        groups: those of the mini-batch to be run.
        size: groups of a pass, in order and untrimmed, if there is no budget.
        budget: padded tokens of a pass.
        least: passes to make even if there is nothing to run.
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
        plans = [[share[i : i + size] for i in range(0, len(share), size)] for share in shares]
    else:
        plans = [pack(share, widths, group_size, budget) for share in shares]
    made = [
        with_shares(take(mini_batch, some, group_size, trim), mini_batch, processes)
        for some in plans[process]
    ]
    idle = without_weight(take(mini_batch, [costs.index(min(costs))], group_size, trim=True))
    return made + [idle] * (max(least, *map(len, plans)) - len(made))


def part_of_group(groups: int, group_size: int, processes: int) -> int:
    """The completions of one group that each process has to run, so that all are run by some.

    It divides group_size, so that a process has one prompt; it is group_size where groups are not torn.
    """
    least = max(1, -(-groups * group_size // processes))
    return next((part for part in range(least, group_size) if group_size % part == 0), group_size)


def share_out(groups: Sequence[int], costs: Sequence[int], processes: int) -> list[list[int]]:
    """Divide groups among processes, so that the costs of all are about equal.

    The most expensive group goes to the process with the least so far, and so on.

    Args:
        costs: of every group, indexed by it.
    """
    shares: list[list[int]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for group in sorted(groups, key=lambda g: (-costs[g], g)):
        least = loads.index(min(loads))
        shares[least].append(group)
        loads[least] += costs[group]
    return [sorted(share) for share in shares]


def pack(
    groups: Sequence[int], widths: Sequence[tuple[int, int]], group_size: int, budget: int
) -> Passes:
    """Passes of groups of like length, each of at most `budget` padded tokens or of one group.

    A pass is as wide as its longest prompt and its longest completion together.
    """
    passes: Passes = []
    prompt = completion = 0
    for group in sorted(groups, key=lambda g: (-sum(widths[g]), g)):
        wider = (max(prompt, widths[group][0]), max(completion, widths[group][1]))
        if passes and (len(passes[-1]) + 1) * group_size * sum(wider) <= budget:
            passes[-1].append(group)
            prompt, completion = wider
        else:
            passes.append([group])
            prompt, completion = widths[group]
    return passes


def take(mini_batch: Batch, groups: Sequence[int], group_size: int, trim: bool) -> Batch:
    """The rows of some groups; trimmed, without the columns that are padding in all of them."""
    index = torch.tensor(groups, dtype=torch.long, device=mini_batch["completion_ids"].device)
    offsets = torch.arange(group_size, device=index.device)
    piece = rows(mini_batch, (index[:, None] * group_size + offsets).flatten())
    return _trimmed(piece) if trim else piece


def with_shares(piece: Batch, mini_batch: Batch, processes: int) -> Batch:
    """The pass with `sequence_share` and `token_share` of its mini-batch.

    These are the part of the mini-batch's completions, and of their tokens, that it holds, times the
    number of processes, whose gradients are averaged. Losses that are means over a pass, times its
    share, sum to the mean over the mini-batch, whatever was left out because it contributes nothing or
    was not graded: neither makes the others count for more.
    """
    tokens = piece["completion_mask"].sum() / mini_batch["completion_mask"].sum().clamp(min=1)
    part = len(piece["completion_ids"]) / len(mini_batch["completion_ids"])
    return piece | {
        "sequence_share": torch.tensor(part * processes, device=tokens.device),
        "token_share": tokens * processes,
    }


def torn(piece: Batch, part: int, process: int) -> Batch:
    """The pass with `own_rows`, (part,): those of it that a process runs.

    A process for which none is left runs the last, beyond the number of rows: it does not count.
    """
    last = len(piece["completion_ids"]) - 1
    own = torch.arange(process * part, (process + 1) * part, device=piece["completion_ids"].device)
    return piece | {"own_rows": own.clamp(max=last)}


def own_part(piece: Batch) -> Batch:
    """What a process runs of a pass: all of it, unless it is torn."""
    if "own_rows" not in piece:
        return piece
    return rows({name: piece[name] for name in FORWARD}, piece["own_rows"])


def without_weight(piece: Batch) -> Batch:
    """A pass that contributes nothing: run where other processes run one, and all must take part."""
    zero = torch.zeros((), device=piece["completion_ids"].device)
    return piece | {"sequence_share": zero, "token_share": zero}


def _trimmed(piece: Batch) -> Batch:
    prompt = int(piece["prompt_mask"].sum(1).max())
    completion = max(1, int(piece["completion_mask"].sum(1).max()))
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
    index = (
        groups[:, None] * group_size + torch.arange(group_size, device=groups.device)
    ).flatten()
    replaced = {}
    for name, old in batch.items():
        new = fresh[name]
        if old.dim() == 0:
            replaced[name] = old
            continue
        if old.dim() == 2:
            width = max(old.size(1), new.size(1))
            old, new = (widen(side, width, name, pad_id) for side in (old, new))
        old = old.clone()
        old[index] = new[: len(index)]
        replaced[name] = old
    return replaced


def widen(values: Tensor, width: int, name: str, pad_id: int) -> Tensor:
    """Pad (N, T) to (N, width): prompts on the left, completions on the right; ids with pad_id."""
    missing = width - values.size(1)
    sides = (missing, 0) if name.startswith("prompt") else (0, missing)
    return torch.nn.functional.pad(values, sides, value=pad_id if name.endswith("_ids") else 0)
