"""Cutting a mini-batch into blocks, and these into passes."""

import random
from itertools import pairwise

import pytest
import torch

from rapid.training.batches import take
from rapid.training.passes import (
    PassSize,
    blocks,
    own_part,
    pack,
    part_of_group,
    share_out,
    with_shares,
)
from tests.training.test_batches import batch


def test_shares_sum_to_one_over_everything_that_could_be_run():
    whole = batch()
    whole["completion_mask"][0, 1:] = 0
    whole["completion_mask"][5] = 0
    pieces = [with_shares(take(whole, groups, 2, True), whole, 1) for groups in ([0], [1, 2], [3])]
    assert sum(piece["sequence_share"].item() for piece in pieces) == 1
    assert sum(piece["token_share"].item() for piece in pieces) == pytest.approx(1)
    assert pieces[0]["token_share"].item() == pytest.approx(4 / 19)
    for count in (1, 0):  # where a single token is learned, or none
        whole["completion_mask"] = torch.zeros_like(whole["completion_mask"])
        whole["completion_mask"][7, 0] = count
        assert with_shares(take(whole, [3], 2, True), whole, 1)["token_share"] == count


NUMBERS = random.Random(0)
WIDTHS = [(NUMBERS.randint(8, 12), NUMBERS.randint(1, 50)) for _ in range(40)]


def padded(groups) -> int:
    """The tokens of a pass of groups of four."""
    return len(groups) * 4 * sum(max(WIDTHS[g][i] for g in groups) for i in (0, 1))


def test_packed_passes_have_every_group_once_within_the_budget_and_little_padding():
    packed = pack(range(40), WIDTHS, 4, 400, alike=False)
    assert sorted(group for one in packed for group in one) == list(range(40))
    assert all(len(one) == 1 or padded(one) <= 400 for one in packed)
    assert all(padded([*one, after]) > 400 for one, (after, *_) in pairwise(packed))
    assert 4 * sum(map(sum, WIDTHS)) > 0.9 * sum(map(padded, packed))


def test_a_group_wider_than_the_budget_has_a_pass_of_its_own():
    assert pack([0, 1], [(5, 100), (5, 5)], 2, 30, alike=False) == [[0], [1]]


def test_prompts_of_one_length_only_are_in_a_pass_that_is_to_have_them_alike():
    widths = [(5, 1), (4, 1), (5, 2)]
    assert pack(range(3), widths, 1, 100, alike=True) == [[1], [2, 0]]
    assert pack(range(3), widths, 1, 100, alike=False) == [[2, 0, 1]]
    (made,) = passes_of([0, 1, 2], 1, budget=None, alike=True)
    assert [len(piece["completion_ids"]) for piece in made] == [2, 2, 2]


def test_every_group_has_one_process_and_loads_differ_by_less_than_a_group():
    costs = [sum(width) for width in WIDTHS]
    shares = share_out(range(1, 40), costs, 4)
    assert sorted(group for share in shares for group in share) == list(range(1, 40))
    loads = [sum(costs[g] for g in share) for share in shares]
    assert max(loads) - min(loads) <= max(costs)
    assert share_out([5], [1] * 6, 3) == [[5], [], []]
    assert share_out(range(3), [1, 1, 2], 2) == [[2], [0, 1]]


def passes_of(groups, processes, group_size=2, budget=30, completions=4, **settings):
    """The passes of each process, of 24 completions, a third of which are short."""
    whole = batch(24) | {"rewards": torch.arange(24.0)}
    whole["completion_mask"][::3, 1:] = 0
    size = PassSize(completions, budget)
    return [
        [
            piece
            for block in blocks(
                whole, groups, group_size, size, processes=processes, process=process, **settings
            )
            for piece in block
        ]
        for process in range(processes)
    ]


@pytest.mark.parametrize("budget", [30, None])
def test_processes_make_as_many_passes_whose_shares_average_to_what_is_run(budget):
    first, second = passes_of([0, 1, 4, 7, 9], 2, budget=budget)
    assert len(first) == len(second)
    shares, tokens = (
        sum(piece[f"{of}_share"].item() for piece in first + second) for of in ("sequence", "token")
    )
    assert shares / 2 == pytest.approx(5 / 12)
    assert tokens / 2 == pytest.approx((5 * 1 + 5 * 3) / (8 * 1 + 16 * 3))


def test_a_process_without_work_takes_part_without_weight():
    *_, (idle,) = passes_of([1, 3, 5], 4)
    assert idle["sequence_share"] == idle["token_share"] == 0
    assert not idle["completion_mask"].any()  # in no count of tokens either


def test_without_anything_to_run_there_is_no_pass_unless_one_is_needed():
    assert passes_of([], 2) == [[], []]
    assert [len(process) for process in passes_of([], 2, least=1)] == [1, 1]


def test_without_work_the_group_of_the_fewest_tokens_is_run():
    whole = batch()
    whole["completion_mask"][4:6, 1:] = 0  # the third group's
    ((idle,),) = blocks(whole, [], 2, PassSize(2), least=1)
    assert idle["completion_ids"][:, 0].tolist() == [4, 5]


def test_without_a_budget_passes_are_in_order_and_as_wide_as_the_batch():
    whole = batch(8)
    whole["completion_mask"][:6, 2:] = 0
    made = [piece for (piece,) in blocks(whole, [0, 1, 2], 2, PassSize(4))]
    assert [piece["completion_ids"][:, 0].tolist() for piece in made] == [[0, 1, 2, 3], [4, 5]]
    assert {piece["completion_ids"].size(1) for piece in made} == {3}


@pytest.mark.parametrize(
    ("groups", "group_size", "processes", "part"),
    [
        (1, 4, 1, 4),
        (1, 4, 2, 2),
        (1, 4, 4, 1),
        (1, 4, 8, 1),
        (1, 4, 3, 2),
        (2, 4, 4, 2),
        (3, 4, 4, 4),  # a part of 3 would have two prompts
        (5, 4, 4, 4),
        (3, 8, 7, 4),
    ],
)
def test_a_process_runs_part_of_one_group_or_whole_groups(groups, group_size, processes, part):
    assert part_of_group(groups, group_size, processes) == part


@pytest.mark.parametrize(
    ("groups", "processes", "own"),
    [
        ([1], 4, [[4], [5], [6], [7]]),
        ([0, 2], 4, [[0, 1], [2, 3], [8, 9], [10, 11]]),  # a process has one prompt
        ([0], 3, [[0, 1], [2, 3], [3, 3]]),  # where nothing is left, the last again
    ],
)
def test_processes_run_parts_of_a_torn_pass_and_see_all_of_it(groups, processes, own):
    made = [piece for (piece,) in passes_of(groups, processes, group_size=4)]
    assert [own_part(piece)["completion_ids"][:, 0].tolist() for piece in made] == own
    rows = [4 * group + n for group in groups for n in range(4)]
    tokens = [1 if row % 3 == 0 else 3 for row in range(24)]
    for piece in made:
        assert piece["rewards"].tolist() == rows
        assert piece["sequence_share"].item() == pytest.approx(len(rows) / 24)
        share = sum(tokens[row] for row in rows) / sum(tokens)
        assert piece["token_share"].item() == pytest.approx(share)


# Passes smaller than a group ----------------------------------------------------------------------


def own_rows(made) -> list[list[int]]:
    """The rows that each pass runs, as their ids say."""
    return [own_part(piece)["completion_ids"][:, 0].tolist() for piece in made]


@pytest.mark.parametrize(
    ("size", "runs"),
    [
        (PassSize(3), [[0, 1, 2], [3, 4, 5], [6, 7]]),  # in order
        (PassSize(1), [[row] for row in range(8)]),
        (PassSize(8, 16), [[5, 6], [7, 0], [1, 2, 3, 4]]),  # 8, 8 and 4 tokens a completion
        (PassSize(8, 1), [[5], [6], [7], [0], [1], [2], [3], [4]]),  # one has more than the budget
        (PassSize(8, 64), [[*range(8)]]),
    ],
)
def test_a_group_that_is_too_large_is_run_in_several_passes(size, runs):
    whole = batch(16, 6)
    whole["prompt_mask"][:, 2:] = 0
    whole["completion_mask"][:5, 2:] = 0
    (block, *_) = blocks(whole, [0, 1], 8, size)
    assert own_rows(block) == runs
    for piece in block:
        assert piece["completion_ids"].size(0) == 8
        assert piece["sequence_share"] == 0.5
        own = own_part(piece)
        assert (
            own["completion_ids"].size(1) == own["completion_mask"].sum(1).max() or len(runs) == 1
        )
    if len(runs) > 1:
        assert [bool(piece["is_last"]) for piece in block] == [False] * (len(runs) - 1) + [True]


def test_processes_make_as_many_passes_where_groups_are_divided():
    """One has two groups of short completions, the other one group of long ones."""
    whole = batch(12, 6)
    whole["completion_mask"][4:, 1:] = 0
    made = [
        blocks(whole, [0, 1, 2], 4, PassSize(8, 28), processes=2, process=process)
        for process in range(2)
    ]
    counts = [sum(map(len, some)) for some in made]
    assert counts[0] == counts[1] == 2
    long, short = made
    assert own_rows(long[0]) == [[0, 1], [2, 3]]
    assert [own_rows(block) for block in short] == [[[4, 5, 6, 7]], [[8, 9, 10, 11]]]


def test_a_torn_block_is_divided_where_a_process_has_too_much_of_it():
    """Four completions, three processes: two rows, two rows, and the last again for nothing."""
    whole = batch(4, 3)
    made = [
        blocks(whole, [0], 4, PassSize(1), processes=3, process=process) for process in range(3)
    ]
    assert [own_rows(some[0]) for some in made] == [[[0], [1]], [[2], [3]], [[3]]]
    assert [int(some[0][0]["own_weight"]) for some in made] == [3, 3, 0]
    assert [sum(map(len, some)) for some in made] == [2, 2, 2]
