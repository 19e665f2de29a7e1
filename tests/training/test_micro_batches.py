"""Mini-batches are split into chunks, and chunks into micro-batches."""

import random
from itertools import chain, pairwise

import pytest
import torch

from rapid.training.batches import select_groups
from rapid.training.micro_batches import (
    MicroBatchLimit,
    add_shares,
    assign_groups,
    make_chunks,
    pack_groups,
    select_local,
    size_shard,
)
from tests.training.test_batches import make_batch


def list_rows(chunk) -> list[list[int]]:
    """Return the rows that each micro-batch of a chunk runs; a row's ids are its number."""
    return [select_local(micro_batch)["completion_ids"][:, 0].tolist() for micro_batch in chunk]


def test_shares_of_all_groups_sum_to_one():
    batch = make_batch()
    batch["completion_mask"][0, 1:] = 0
    batch["completion_mask"][5] = 0
    chunks = [
        add_shares(select_groups(batch, groups, 2, True), batch, 1) for groups in ([0], [1, 2], [3])
    ]
    assert sum(chunk["sequence_share"].item() for chunk in chunks) == 1
    assert sum(chunk["token_share"].item() for chunk in chunks) == pytest.approx(1)
    assert chunks[0]["token_share"].item() == pytest.approx(4 / 19)
    for count in (1, 0):  # with one token in the loss, and with none
        batch["completion_mask"] = torch.zeros_like(batch["completion_mask"])
        batch["completion_mask"][7, 0] = count
        assert add_shares(select_groups(batch, [3], 2, True), batch, 1)["token_share"] == count


RNG = random.Random(0)
WIDTHS = [(RNG.randint(8, 12), RNG.randint(1, 50)) for _ in range(40)]


def count_tokens(groups) -> int:
    """Return the number of tokens of groups of four, with padding."""
    return len(groups) * 4 * sum(max(WIDTHS[group][i] for group in groups) for i in (0, 1))


def test_packing_keeps_budget_with_little_padding():
    limit = MicroBatchLimit(1, tokens=400)
    packed = pack_groups(range(40), WIDTHS, 4, limit, same_prompt_length=False)
    assert sorted(group for groups in packed for group in groups) == list(range(40))
    assert all(len(groups) == 1 or count_tokens(groups) <= 400 for groups in packed)
    assert all(
        count_tokens([*groups, following]) > 400 for groups, (following, *_) in pairwise(packed)
    )
    assert 4 * sum(map(sum, WIDTHS)) > 0.9 * sum(map(count_tokens, packed))


@pytest.mark.parametrize(
    ("widths", "group_size", "budget", "same_prompt_length", "packed"),
    [
        ([(5, 100), (5, 5)], 2, 30, False, [[0], [1]]),  # one group alone exceeds the budget
        ([(5, 1), (4, 1), (5, 2)], 1, 100, False, [[2, 0, 1]]),
        ([(5, 1), (4, 1), (5, 2)], 1, 100, True, [[1], [2, 0]]),
    ],
)
def test_groups_of_similar_length_share_a_chunk(
    widths, group_size, budget, same_prompt_length, packed
):
    groups, limit = range(len(widths)), MicroBatchLimit(1, tokens=budget)
    assert pack_groups(groups, widths, group_size, limit, same_prompt_length) == packed


def test_groups_are_assigned_once_with_balanced_loads():
    costs = [sum(width) for width in WIDTHS]
    shares = assign_groups(range(1, 40), costs, 4)
    assert sorted(group for share in shares for group in share) == list(range(1, 40))
    loads = [sum(costs[group] for group in share) for share in shares]
    assert max(loads) - min(loads) <= max(costs)
    assert assign_groups([5], [1] * 6, 3) == [[5], [], []]
    assert assign_groups(range(3), [1, 1, 2], 2) == [[2], [0, 1]]


def make_micro_batches(groups, processes, group_size=2, budget=30, completions=4, **settings):
    """Return each process's micro-batches of 24 completions, a third of which are short."""
    batch = make_batch(24) | {"rewards": torch.arange(24.0)}
    batch["completion_mask"][::3, 1:] = 0
    limit = MicroBatchLimit(completions, budget)
    chunks = [
        make_chunks(
            batch, groups, group_size, limit, processes=processes, process=process, **settings
        )
        for process in range(processes)
    ]
    return [[*chain.from_iterable(process_chunks)] for process_chunks in chunks]


@pytest.mark.parametrize("budget", [30, None])
def test_processes_run_equally_many_micro_batches_with_correct_shares(budget):
    first, second = make_micro_batches([0, 1, 4, 7, 9], 2, budget=budget)
    assert len(first) == len(second)
    shares, tokens = (
        sum(batch[f"{unit}_share"].item() for batch in first + second)
        for unit in ("sequence", "token")
    )
    assert shares / 2 == pytest.approx(5 / 12)
    assert tokens / 2 == pytest.approx((5 * 1 + 5 * 3) / (8 * 1 + 16 * 3))


def test_idle_process_runs_cheapest_group_without_weight():
    *_, (dummy,) = make_micro_batches([1, 3, 5], 4)
    assert dummy["sequence_share"] == dummy["token_share"] == 0
    assert not dummy["completion_mask"].any()  # it counts no tokens either
    batch = make_batch()
    batch["completion_mask"][4:6, 1:] = 0  # the third group is the cheapest
    ((dummy,),) = make_chunks(batch, [], 2, MicroBatchLimit(2), min_micro_batches=1)
    assert dummy["completion_ids"][:, 0].tolist() == [4, 5]
    assert make_micro_batches([], 2) == [[], []]
    assert [len(batches) for batches in make_micro_batches([], 2, min_micro_batches=1)] == [1, 1]


def test_without_budget_rows_keep_order_and_batch_width():
    batch = make_batch(8)
    batch["completion_mask"][:6, 2:] = 0
    chunks = make_chunks(batch, [0, 1, 2], 2, MicroBatchLimit(4))
    assert [list_rows(chunk) for chunk in chunks] == [[[0, 1, 2, 3]], [[4, 5]]]
    assert {chunk[0]["completion_ids"].size(1) for chunk in chunks} == {3}
    (micro_batches,) = make_micro_batches([0, 1, 2], 1, budget=None, same_prompt_length=True)
    assert [len(batch["completion_ids"]) for batch in micro_batches] == [2, 2, 2]


@pytest.mark.parametrize(
    ("groups", "group_size", "processes", "shard_size"),
    [
        (1, 4, 1, 4),
        (1, 4, 2, 2),
        (1, 4, 4, 1),
        (1, 4, 8, 1),
        (1, 4, 3, 2),
        (2, 4, 4, 2),
        (3, 4, 4, 4),  # a shard of 3 would have two prompts
        (5, 4, 4, 4),
        (3, 8, 7, 4),
    ],
)
def test_shard_is_part_of_one_group_or_whole_groups(groups, group_size, processes, shard_size):
    assert size_shard(groups, group_size, processes) == shard_size


@pytest.mark.parametrize(
    ("groups", "processes", "rows"),
    [
        ([1], 4, [[4], [5], [6], [7]]),
        ([0, 2], 4, [[0, 1], [2, 3], [8, 9], [10, 11]]),  # each process has one prompt
        ([0], 3, [[0, 1], [2, 3], [3, 3]]),  # no row is left for the third, which repeats the last
    ],
)
def test_processes_run_shards_and_see_whole_chunk(groups, processes, rows):
    shards = [batch for (batch,) in make_micro_batches(groups, processes, group_size=4)]
    assert list_rows(shards) == rows
    chunk_rows = [4 * group + place for group in groups for place in range(4)]
    tokens = [1 if row % 3 == 0 else 3 for row in range(24)]
    for shard in shards:
        assert shard["rewards"].tolist() == chunk_rows
        assert shard["sequence_share"].item() == pytest.approx(len(chunk_rows) / 24)
        share = sum(tokens[row] for row in chunk_rows) / sum(tokens)
        assert shard["token_share"].item() == pytest.approx(share)


@pytest.mark.parametrize(
    ("limit", "rows"),
    [
        (MicroBatchLimit(3), [[0, 1, 2], [3, 4, 5], [6, 7]]),  # in order
        (MicroBatchLimit(1), [[row] for row in range(8)]),
        # Rows take 8, 8 and 4 tokens.
        (MicroBatchLimit(8, 16), [[5, 6], [7, 0], [1, 2, 3, 4]]),
        # Each row exceeds the budget.
        (MicroBatchLimit(8, 1), [[5], [6], [7], [0], [1], [2], [3], [4]]),
        (MicroBatchLimit(8, 64), [[*range(8)]]),
    ],
)
def test_large_group_is_split_into_micro_batches(limit, rows):
    batch = make_batch(16, 6)
    batch["prompt_mask"][:, 2:] = 0
    batch["completion_mask"][:5, 2:] = 0
    (chunk, *_) = make_chunks(batch, [0, 1], 8, limit)
    assert list_rows(chunk) == rows
    for micro_batch in chunk:
        assert micro_batch["completion_ids"].size(0) == 8
        assert micro_batch["sequence_share"] == 0.5
        local_rows = select_local(micro_batch)
        longest = local_rows["completion_mask"].sum(1).max()
        assert len(rows) == 1 or local_rows["completion_ids"].size(1) == longest
    if len(rows) > 1:
        is_last = [bool(micro_batch["is_last"]) for micro_batch in chunk]
        assert is_last == [False] * (len(rows) - 1) + [True]


def make_chunks_by_process(batch, groups, limit, processes) -> list[list]:
    return [
        make_chunks(batch, groups, 4, limit, processes=processes, process=process)
        for process in range(processes)
    ]


def test_processes_run_equally_many_micro_batches_of_split_groups():
    """One process has two groups of short completions, the other one group of long ones."""
    batch = make_batch(12, 6)
    batch["completion_mask"][4:, 1:] = 0
    long, short = make_chunks_by_process(batch, [0, 1, 2], MicroBatchLimit(8, 28), 2)
    assert [list_rows(chunk) for chunk in long] == [[[0, 1], [2, 3]]]
    assert [list_rows(chunk) for chunk in short] == [[[4, 5, 6, 7]], [[8, 9, 10, 11]]]


def test_large_shard_is_split_into_micro_batches():
    """Two processes have two of four rows each; the third repeats the last row at weight 0."""
    shards = make_chunks_by_process(make_batch(4, 3), [0], MicroBatchLimit(1), 3)
    assert [list_rows(chunks[0]) for chunks in shards] == [[[0], [1]], [[2], [3]], [[3]]]
    assert [int(chunks[0][0]["local_weight"]) for chunks in shards] == [3, 3, 0]
    assert [sum(map(len, chunks)) for chunks in shards] == [2, 2, 2]
