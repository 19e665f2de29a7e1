"""Cuts a mini-batch into the micro-batches of each process.

chunk          some groups of a mini-batch, whose loss is computed together
micro-batch    one forward and backward pass: a chunk, or some rows of a chunk that is too large
sharded chunk  its rows are divided among the processes; any other chunk is one process's

A micro-batch has all rows of its chunk, as the loss needs them; each `rows_per_prompt` rows, 0-d,
have one. Where it does not run all rows, further columns say what it runs:

local_rows     (n,), the rows that this process runs in this micro-batch
local_weight   0-d, what they count beside those of other processes: their number, or 0, in a
               sharded chunk, else 1
is_last        0-d, whether it is this process's last micro-batch of the chunk; missing where a
               chunk is sharded and each process runs one micro-batch of it
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rapid.training.batches import (
    FORWARD_COLUMNS,
    Batch,
    group_widths,
    loss_mask,
    select_groups,
    select_rows,
    trim_padding,
)

Chunk = list[Batch]  # its micro-batches
LOCAL_COLUMNS = (
    *FORWARD_COLUMNS,
    "tool_mask",
    "sampler_logp",
)  # columns of which only local rows are needed


@dataclass(frozen=True)
class MicroBatchLimit:
    """The most that a micro-batch may hold. One completion may have more.

    Args:
        completions: of a micro-batch with completions in order, as wide as the inference batch.
        tokens: padded tokens, prompts included, of a micro-batch whose completions are of like
            length and which is cut to the longest. None is the other kind of micro-batch.
    """

    completions: int
    tokens: int | None = None

    @property
    def packs(self) -> bool:
        """Return whether completions of like length share a micro-batch."""
        return self.tokens is not None

    def halve(self, times: int) -> "MicroBatchLimit":
        """Return half of it, again and again, down to one completion."""
        tokens = None if self.tokens is None else max(1, self.tokens >> times)
        return MicroBatchLimit(max(1, self.completions >> times), tokens)

    def allows(self, count: int, width: int) -> bool:
        """Return whether a micro-batch may have so many completions of so many tokens."""
        return count <= self.completions if self.tokens is None else count * width <= self.tokens


def make_chunks(
    mini_batch: Batch,
    groups: Sequence[int],
    group_size: int,
    limit: MicroBatchLimit,
    *,
    processes: int = 1,
    process: int = 0,
    least: int = 0,
    same_prompt_length: bool = False,
) -> list[Chunk]:
    """Return the chunks of one process, which have as many micro-batches as those of any other.

    Groups are divided among processes. Where part of a group is enough for each, one sharded chunk
    divides the completions.

    Args:
        groups: those of the mini-batch to be run.
        least: micro-batches to make even if there is nothing to run.
        same_prompt_length: put prompts of one length only into a chunk, unless it is sharded.
    """
    widths = group_widths(mini_batch, group_size)
    costs = [sum(width) for width in widths]

    def make_chunk(chunk_groups: Sequence[int], weight: int) -> Batch:
        chunk = select_groups(mini_batch, chunk_groups, group_size, limit.packs)
        size = {"rows_per_prompt": torch.tensor(group_size)}
        return add_shares(chunk, mini_batch, weight) | size

    part = size_shard(len(groups), group_size, processes)
    if groups and part < group_size:
        shards = shard_chunk(make_chunk(groups, 1), part, processes, limit)
        chunks_by_process = [[micro_batches] for micro_batches in shards]
    else:
        shares = assign_groups(groups, costs, processes)
        plans = [
            plan_chunks(share, widths, group_size, limit, same_prompt_length) for share in shares
        ]
        chunks_by_process = [
            [split_chunk(make_chunk(chunk_groups, processes), limit) for chunk_groups in plan]
            for plan in plans
        ]
    counts = [sum(map(len, chunks)) for chunks in chunks_by_process]
    cheapest = [costs.index(min(costs))]
    dummy = make_dummy(select_groups(mini_batch, cheapest, group_size, trim=True))
    return chunks_by_process[process] + [[dummy]] * (max(least, *counts) - counts[process])


def select_local(micro_batch: Batch) -> Batch:
    """Return what a process runs of a micro-batch: all of it, or its local rows."""
    if "local_rows" not in micro_batch:
        return micro_batch
    columns = {name: micro_batch[name] for name in LOCAL_COLUMNS if name in micro_batch}
    local = select_rows(columns, micro_batch["local_rows"])
    return trim_padding(local) if "is_last" in micro_batch else local


# Chunks -------------------------------------------------------------------------------------------


def plan_chunks(
    groups: Sequence[int],
    widths: Sequence[tuple[int, int]],
    group_size: int,
    limit: MicroBatchLimit,
    same_prompt_length: bool,
) -> list[list[int]]:
    """Return the groups of each chunk of a process: what a micro-batch holds, or one group."""
    if limit.tokens is not None:
        return pack_groups(groups, widths, group_size, limit.tokens, same_prompt_length)
    count = 1 if same_prompt_length else max(1, limit.completions // group_size)
    return [list(groups[i : i + count]) for i in range(0, len(groups), count)]


def size_shard(groups: int, group_size: int, processes: int) -> int:
    """Return how many completions of one group each process has to run, so that all are run.

    The number divides group_size, so that a process has one prompt. It is group_size where groups
    are not sharded.
    """
    least = max(1, -(-groups * group_size // processes))
    return next((part for part in range(least, group_size) if group_size % part == 0), group_size)


def assign_groups(groups: Sequence[int], costs: Sequence[int], processes: int) -> list[list[int]]:
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


def pack_groups(
    groups: Sequence[int],
    widths: Sequence[tuple[int, int]],
    group_size: int,
    budget: int,
    same_prompt_length: bool,
) -> list[list[int]]:
    """Return chunks of groups of like length, each of at most `budget` padded tokens or one group.

    A chunk is as wide as its longest prompt and its longest completion together.
    """
    packed: list[list[int]] = []
    prompt = completion = 0
    order = sorted(groups, key=lambda g: (same_prompt_length * widths[g][0], -sum(widths[g]), g))
    for group in order:
        wider = (max(prompt, widths[group][0]), max(completion, widths[group][1]))
        fits = not same_prompt_length or widths[group][0] == prompt
        if packed and fits and (len(packed[-1]) + 1) * group_size * sum(wider) <= budget:
            packed[-1].append(group)
            prompt, completion = wider
        else:
            packed.append([group])
            prompt, completion = widths[group]
    return packed


def add_shares(chunk: Batch, mini_batch: Batch, processes: int) -> Batch:
    """Add `sequence_share` and `token_share`, 0-d: the part of its mini-batch that a chunk is.

    They are parts of the mini-batch's completions and tokens, times the number of processes, whose
    gradients are averaged. Losses that are means over a chunk, times its share, sum to the mean
    over the mini-batch. What was left out contributes nothing, and makes no other count for more.
    """
    tokens = loss_mask(chunk).sum() / loss_mask(mini_batch).sum().clamp(min=1)
    part = len(chunk["completion_ids"]) / len(mini_batch["completion_ids"])
    return chunk | {
        "sequence_share": torch.tensor(part * processes, device=tokens.device),
        "token_share": tokens * processes,
    }


def make_dummy(chunk: Batch) -> Batch:
    """Return a micro-batch without weight, for a process that has to take part in the others'."""
    zero = torch.zeros((), device=chunk["completion_ids"].device)
    mask = torch.zeros_like(chunk["completion_mask"])
    return chunk | {"sequence_share": zero, "token_share": zero, "completion_mask": mask}


# Micro-batches ------------------------------------------------------------------------------------


def split_chunk(chunk: Batch, limit: MicroBatchLimit) -> Chunk:
    """Return the micro-batches of a chunk that one process runs."""
    parts = split_rows(chunk, range(len(chunk["completion_ids"])), limit)
    return [chunk] if len(parts) == 1 else make_micro_batches(chunk, parts, weight=1)


def shard_chunk(chunk: Batch, part: int, processes: int, limit: MicroBatchLimit) -> list[Chunk]:
    """Return the micro-batches of each process of a chunk that they divide.

    A process runs `part` rows, in one micro-batch if the rows of every process are within the
    limit. Where none are left it runs the last, which does not count.
    """
    shards = [take_shard(chunk, part, process, processes) for process in range(processes)]
    parts_by_process = [
        split_rows(chunk, sorted({*shard["local_rows"].tolist()}), limit) for shard in shards
    ]
    if max(map(len, parts_by_process)) == 1:
        return [[shard] for shard in shards]
    return [
        make_micro_batches(chunk, parts, int(shard["local_weight"]))
        for parts, shard in zip(parts_by_process, shards, strict=True)
    ]


def take_shard(chunk: Batch, part: int, process: int, processes: int) -> Batch:
    """Return a process's micro-batch of `part` rows; it has the last row where none are left."""
    last, first = len(chunk["completion_ids"]) - 1, process * part
    device = chunk["completion_ids"].device
    return chunk | {
        "local_rows": torch.arange(first, first + part, device=device).clamp(max=last),
        "local_weight": torch.tensor(processes if first <= last else 0, device=device),
    }


def split_rows(chunk: Batch, rows: Sequence[int], limit: MicroBatchLimit) -> list[list[int]]:
    """Return which of these rows of a chunk share a micro-batch: all, if the limit allows it.

    Else they are packed, the longest first, or stay in order.
    """
    lengths = chunk["completion_mask"].sum(1).tolist()
    prompt = int(chunk["prompt_mask"].sum(1).max())
    if limit.allows(len(rows), prompt + max(lengths[row] for row in rows)):
        return [list(rows)]
    parts: list[list[int]] = []
    for row in sorted(rows, key=lambda row: -lengths[row] if limit.packs else row):
        if parts and limit.allows(len(parts[-1]) + 1, prompt + lengths[parts[-1][0]]):
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def make_micro_batches(chunk: Batch, parts: list[list[int]], weight: int) -> Chunk:
    """Return the micro-batches of a chunk that run these rows."""
    device = chunk["completion_ids"].device
    return [
        chunk
        | {
            "local_rows": torch.tensor(rows, device=device),
            "local_weight": torch.tensor(weight, device=device),
            "is_last": torch.tensor(number == len(parts)),
            "rows_per_prompt": torch.tensor(len(rows)),
        }
        for number, rows in enumerate(parts, 1)
    ]
