"""Splits a mini-batch into the micro-batches of each process.

A chunk is the groups of a mini-batch whose loss is computed together. It is run as one micro-batch
or split into several. Usually a single process runs all its rows; in a sharded chunk the rows are
divided among the processes. See `rapid.training` for other terms.

A micro-batch is a dict of tensors with all rows of its chunk, since the loss needs them all. The
column `rows_per_prompt`, 0-d, is the number of consecutive rows that have the same prompt. If a
micro-batch runs only some rows of its chunk, it has further columns:

local_rows     (n,), indices of the rows that this process runs in this micro-batch
local_weight   0-d, factor of these rows' gradient: 1, or in a sharded chunk the number of processes
               (over which gradients are averaged), or 0 in a process for which no rows are left
is_last        0-d, whether this is the last micro-batch of the chunk in this process; missing if
               the chunk is sharded and each process runs one micro-batch of it
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

MicroBatches = list[Batch]  # those of one chunk that one process runs
# Columns that a forward pass needs, for `local_rows` only.
LOCAL_COLUMNS = (*FORWARD_COLUMNS, "tool_mask", "sampler_logp")


@dataclass(frozen=True)
class MicroBatchLimit:
    """The upper limit of the size of a micro-batch. A single completion may exceed it.

    Args:
        completions: the limit if `tokens` is None. Then completions stay in order, and are padded
            to the width of the inference batch.
        tokens: the limit in padded tokens, with prompts. Then the completions of a micro-batch have
            similar lengths, and it is as wide as the longest of them.
    """

    completions: int
    tokens: int | None = None

    @property
    def packs(self) -> bool:
        """Return whether micro-batches are packed with completions of similar length."""
        return self.tokens is not None

    def halve(self, times: int) -> "MicroBatchLimit":
        """Return the limit divided by 2 ** times; at least one completion or token."""
        tokens = None if self.tokens is None else max(1, self.tokens >> times)
        return MicroBatchLimit(max(1, self.completions >> times), tokens)

    def allows(self, count: int, width: int) -> bool:
        """Return whether a micro-batch may have `count` completions of `width` padded tokens."""
        return count <= self.completions if self.tokens is None else count * width <= self.tokens


def make_chunks(
    mini_batch: Batch,
    groups: Sequence[int],
    group_size: int,
    limit: MicroBatchLimit,
    *,
    processes: int = 1,
    process: int = 0,
    min_micro_batches: int = 0,
    same_prompt_length: bool = False,
    splits_groups: bool = True,
) -> list[MicroBatches]:
    """Return the micro-batches of each chunk that one process runs.

    Groups are divided among processes. If `size_shard` allows it, completions are divided instead,
    as one sharded chunk. Processes with fewer micro-batches than others also get dummies of weight
    0, so that all have the same number.

    Args:
        groups: indices of the groups of the mini-batch that are run.
        group_size: number of consecutive rows with the same prompt that form a group here. With
            TRL's loss this may be a part of N_group (`GradientTrainer._rows_per_prompt`).
        processes, process: number of processes, and index of the one whose chunks are returned.
        min_micro_batches: lowest number of micro-batches, even if `groups` is empty.
        same_prompt_length: put only prompts of the same length into a chunk, unless it is sharded;
            only one prompt if `limit` is in completions.
        splits_groups: whether a chunk that exceeds the limit is run in several micro-batches.
    """
    row_limit = limit if splits_groups else MicroBatchLimit(len(mini_batch["completion_ids"]))
    widths = group_widths(mini_batch, group_size)
    costs = [sum(width) for width in widths]

    def make_chunk(chunk_groups: Sequence[int], weight: int) -> Batch:
        """Return a chunk of groups, with its shares of the mini-batch times a weight.

        The weight is the number of processes, as DDP averages gradients over processes. For a
        sharded chunk it is 1, because `local_weight` multiplies by the number of processes instead.
        """
        chunk = select_groups(mini_batch, chunk_groups, group_size, trim=limit.packs)
        rows_per_prompt = {"rows_per_prompt": torch.tensor(group_size)}
        return add_shares(chunk, mini_batch, weight) | rows_per_prompt

    shard_size = size_shard(len(groups), group_size, processes)
    if groups and shard_size < group_size:  # each process runs a part of one group
        shards = shard_chunk(make_chunk(groups, 1), shard_size, processes, row_limit)
        chunks_by_process = [[micro_batches] for micro_batches in shards]
    else:
        groups_by_process = assign_groups(groups, costs, processes)
        plans = [
            pack_groups(process_groups, widths, group_size, limit, same_prompt_length)
            for process_groups in groups_by_process
        ]
        chunks_by_process = [
            [split_chunk(make_chunk(chunk_groups, processes), row_limit) for chunk_groups in plan]
            for plan in plans
        ]
    counts = [sum(map(len, chunks)) for chunks in chunks_by_process]
    cheapest_group = [costs.index(min(costs))]
    dummy = make_dummy(select_groups(mini_batch, cheapest_group, group_size, trim=True))
    missing = max(min_micro_batches, *counts) - counts[process]
    return chunks_by_process[process] + [[dummy]] * missing


def count_local_rows(micro_batch: Batch) -> int:
    """Return how many rows of a micro-batch this process runs."""
    return len(micro_batch.get("local_rows", micro_batch["completion_ids"]))


def select_local(micro_batch: Batch) -> Batch:
    """Return the rows of a micro-batch that this process runs: all, or `local_rows`."""
    if "local_rows" not in micro_batch:
        return micro_batch
    columns = {name: micro_batch[name] for name in LOCAL_COLUMNS if name in micro_batch}
    local = select_rows(columns, micro_batch["local_rows"])
    # Without `is_last` the rows of all processes are gathered (`gather_logps`), which needs rows of
    # equal width.
    return trim_padding(local) if "is_last" in micro_batch else local


# Chunks -------------------------------------------------------------------------------------------


def size_shard(groups: int, group_size: int, processes: int) -> int:
    """Return how many completions each process runs if `groups` are sharded, else group_size.

    Groups are sharded if shards smaller than a group are enough, of a size that divides group_size,
    so that all completions of a shard have the same prompt. 3 groups of 4 completions on 4
    processes are not sharded, because a shard of 3 would have two prompts.
    """
    smallest = max(1, -(-groups * group_size // processes))  # rounded up: no row is left over
    sizes = (size for size in range(smallest, group_size) if group_size % size == 0)
    return next(sizes, group_size)


def assign_groups(groups: Sequence[int], costs: Sequence[int], processes: int) -> list[list[int]]:
    """Divide groups among processes so that the sums of costs are about equal.

    Groups are assigned from the most to the least expensive one, each to the process whose sum is
    the smallest so far. `costs` is indexed by group.
    """
    groups_by_process: list[list[int]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for group in sorted(groups, key=lambda g: (-costs[g], g)):
        process = loads.index(min(loads))
        groups_by_process[process].append(group)
        loads[process] += costs[group]
    return [sorted(process_groups) for process_groups in groups_by_process]


def pack_groups(
    groups: Sequence[int],
    widths: Sequence[tuple[int, int]],
    group_size: int,
    limit: MicroBatchLimit,
    same_prompt_length: bool,
) -> list[list[int]]:
    """Return the groups of each chunk: as many as the limit allows, but at least one.

    If the limit is in tokens, chunks have groups of similar length. The width of a chunk is the sum
    of its longest prompt and its longest completion. Otherwise groups stay in order.

    Args:
        groups: indices of the groups that a process runs.
        widths: for every group of the mini-batch, tokens of its prompt and of its longest
            completion.
    """
    chunks: list[list[int]] = []
    prompt = completion = 0  # widths of the last chunk
    if limit.packs:
        # From the longest to the shortest group. If prompts have to be equally long, groups are
        # sorted by the length of the prompt first.
        groups = sorted(
            groups, key=lambda g: (same_prompt_length * widths[g][0], -sum(widths[g]), g)
        )
    for group in groups:
        new_widths = (max(prompt, widths[group][0]), max(completion, widths[group][1]))
        may_join = not same_prompt_length or (limit.packs and widths[group][0] == prompt)
        fits = chunks and limit.allows((len(chunks[-1]) + 1) * group_size, sum(new_widths))
        if may_join and fits:
            chunks[-1].append(group)
            prompt, completion = new_widths
        else:
            chunks.append([group])
            prompt, completion = widths[group]
    return chunks


def add_shares(chunk: Batch, mini_batch: Batch, weight: int) -> Batch:
    """Add `sequence_share` and `token_share`, 0-d, to a chunk.

    They are the chunk's shares of the completions and of the tokens of its mini-batch, times a
    weight. With weight 1 the mean losses of all chunks, multiplied by their shares, add up to the
    mean loss of the mini-batch, in which skipped groups count as 0.
    """
    tokens = loss_mask(chunk).sum() / loss_mask(mini_batch).sum().clamp(min=1)
    completions = len(chunk["completion_ids"]) / len(mini_batch["completion_ids"])
    return chunk | {
        "sequence_share": torch.tensor(completions * weight, device=tokens.device),
        "token_share": tokens * weight,
    }


def make_dummy(chunk: Batch) -> Batch:
    """Return a micro-batch of weight 0, for a process that has fewer micro-batches than others.

    With DDP all processes have to make the same number of forward and backward passes.
    """
    zero = torch.zeros((), device=chunk["completion_ids"].device)
    mask = torch.zeros_like(chunk["completion_mask"])
    return chunk | {"sequence_share": zero, "token_share": zero, "completion_mask": mask}


# Micro-batches ------------------------------------------------------------------------------------


def split_chunk(chunk: Batch, limit: MicroBatchLimit) -> MicroBatches:
    """Return the micro-batches of a chunk that one process runs."""
    rows = split_rows(chunk, range(len(chunk["completion_ids"])), limit)
    return [chunk] if len(rows) == 1 else make_micro_batches(chunk, rows, weight=1)


def shard_chunk(
    chunk: Batch, shard_size: int, processes: int, limit: MicroBatchLimit
) -> list[MicroBatches]:
    """Return for each process its micro-batches of a sharded chunk.

    Each process runs `shard_size` rows, in one micro-batch if the limit allows this in every
    process. A process for which no rows are left runs the last row with weight 0.
    """
    shards = [take_shard(chunk, shard_size, process, processes) for process in range(processes)]
    # A process for which no rows are left has the last row several times. The set has it once.
    rows_by_process = [
        split_rows(chunk, sorted({*shard["local_rows"].tolist()}), limit) for shard in shards
    ]
    if max(map(len, rows_by_process)) == 1:
        return [[shard] for shard in shards]
    return [
        make_micro_batches(chunk, rows, int(shard["local_weight"]))
        for rows, shard in zip(rows_by_process, shards, strict=True)
    ]


def take_shard(chunk: Batch, shard_size: int, process: int, processes: int) -> Batch:
    """Return a chunk as one micro-batch, of which a process runs its shard: see `shard_chunk`."""
    last, first = len(chunk["completion_ids"]) - 1, process * shard_size
    device = chunk["completion_ids"].device
    return chunk | {
        "local_rows": torch.arange(first, first + shard_size, device=device).clamp(max=last),
        "local_weight": torch.tensor(processes if first <= last else 0, device=device),
    }


def split_rows(chunk: Batch, rows: Sequence[int], limit: MicroBatchLimit) -> list[list[int]]:
    """Return the rows of each micro-batch; one micro-batch with all rows if the limit allows it.

    Otherwise rows are packed from the longest to the shortest if the limit is in tokens. They stay
    in order if it is in completions.
    """
    lengths = chunk["completion_mask"].sum(1).tolist()
    prompt = int(chunk["prompt_mask"].sum(1).max())
    if limit.allows(len(rows), prompt + max(lengths[row] for row in rows)):
        return [list(rows)]
    micro_batches: list[list[int]] = []
    for row in sorted(rows, key=lambda row: -lengths[row] if limit.packs else row):
        last = micro_batches[-1] if micro_batches else []
        # If rows are sorted by length, the first row of a micro-batch is its longest one.
        if last and limit.allows(len(last) + 1, prompt + lengths[last[0]]):
            last.append(row)
        else:
            micro_batches.append([row])
    return micro_batches


def make_micro_batches(chunk: Batch, rows: list[list[int]], weight: int) -> MicroBatches:
    """Return a chunk's micro-batches, given the rows of each, and with this `local_weight`."""
    device = chunk["completion_ids"].device
    return [
        chunk
        | {
            "local_rows": torch.tensor(local_rows, device=device),
            "local_weight": torch.tensor(weight, device=device),
            "is_last": torch.tensor(number == len(rows)),
            # Only chunks of one group and shards are split. Either has only one prompt.
            "rows_per_prompt": torch.tensor(len(local_rows)),
        }
        for number, local_rows in enumerate(rows, 1)
    ]
