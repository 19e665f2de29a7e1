"""Splitting, and replacing groups of, a sampled batch."""

import random
from itertools import pairwise

import pytest
import torch

from rapid.training.batches import (
    RecentRows,
    endless,
    group_widths,
    own_part,
    pack,
    part_of_group,
    passes,
    replaced,
    share_out,
    take,
    with_shares,
)


def batch(rows=8, width=3):
    ids = torch.arange(rows)[:, None].expand(rows, width).clone()
    mask = torch.ones(rows, width, dtype=torch.long)
    return {
        "prompt_ids": ids,
        "prompt_mask": mask.clone(),
        "completion_ids": ids,
        "completion_mask": mask,
    }


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


def test_a_trimmed_pass_is_as_wide_as_its_own_longest_rows():
    whole = batch()
    whole["prompt_mask"][:4, 0] = 0  # padded on the left
    whole["completion_mask"][2:4, 1:] = 0  # padded on the right
    whole["completion_ids"] = torch.arange(24).view(8, 3)
    first, second = take(whole, [0], 2, True), take(whole, [1], 2, True)
    assert first["prompt_ids"].shape == second["prompt_mask"].shape == (2, 2)
    assert first["completion_ids"].shape == (2, 3)
    assert second["completion_ids"].tolist() == [[6, 7], [9, 10]]  # in as many calls of the model
    assert take(whole, [1], 2, False)["completion_ids"].shape == (2, 3)
    both = take(whole, [3, 1], 2, True)  # of which the one is longer
    assert both["prompt_ids"].shape == both["completion_ids"].shape == (4, 3)


def test_widths_are_of_the_longest_in_each_group():
    whole = batch(4)
    whole["completion_mask"][0, 1:] = 0
    whole["completion_mask"][2:, 2:] = 0
    assert group_widths(whole, 2) == [(3, 3), (3, 2)]


# Passes -------------------------------------------------------------------------------------------

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


def passes_of(groups, processes, group_size=2, **settings):
    """The passes of each process, of 24 completions, a third of which are short."""
    whole = batch(24) | {"rewards": torch.arange(24.0)}
    whole["completion_mask"][::3, 1:] = 0
    settings = {"size": 2, "budget": 30} | settings
    return [
        passes(whole, groups, group_size, processes=processes, process=process, **settings)
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
    settings = {"processes": 1, "process": 0, "size": 1, "budget": None, "least": 1}
    (idle,) = passes(whole, [], 2, **settings)
    assert idle["completion_ids"][:, 0].tolist() == [4, 5]


def test_without_a_budget_passes_are_in_order_and_as_wide_as_the_batch():
    whole = batch(8)
    whole["completion_mask"][:6, 2:] = 0
    alone = {"processes": 1, "process": 0, "size": 2, "budget": None}
    made = passes(whole, [0, 1, 2], 2, **alone)
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


# Rows ---------------------------------------------------------------------------------------------


def test_spare_prompts_are_all_prompts_again_and_again_and_alike_everywhere():
    here, there = endless(range(5), seed=1), endless(range(5), seed=1)
    first, second = ([next(here) for _ in range(5)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(5))
    assert first != second
    assert [next(there) for _ in range(10)] == first + second


def test_only_as_many_rows_stay_decoded_as_are_asked_for_again():
    decoded = []

    class Rows:
        def __len__(self):
            return 9

        def __getitem__(self, index):
            decoded.append(index)
            return {"row": index}

    kept = RecentRows(Rows(), 3)
    for first in (0, 3, 6):
        for _ in range(4):
            assert [kept[first + i]["row"] for i in range(3)] == [first, first + 1, first + 2]
    assert decoded == list(range(9))
    assert len(kept) == 9
    assert kept[0]["row"] == decoded[-1] == 0  # not kept so long


def test_groups_without_signal_replace_none():
    old = {"accuracy": torch.zeros(4)}
    new = {"accuracy": torch.tensor([1.0, 1, 0, 0, 0, 1])}
    both = replaced(old, torch.tensor([0, 1]), new, group_size=2, pad_id=9, signal="accuracy")
    assert both["accuracy"].tolist() == [0, 1, 0, 0]


def test_replaced_groups_are_padded_on_their_own_side():
    old = {"prompt_ids": torch.full((4, 2), 5), "completion_ids": torch.full((4, 2), 6)}
    new = {"prompt_ids": torch.full((2, 3), 7), "completion_ids": torch.full((2, 1), 8)}
    old |= {"prompt_mask": torch.ones(4, 2), "accuracy": torch.zeros(4)}
    new |= {"prompt_mask": torch.ones(2, 3), "accuracy": torch.tensor([0.5, 1])}
    both = replaced(old, torch.tensor([1]), new, group_size=2, pad_id=9, signal="accuracy")
    assert both["prompt_ids"].tolist() == [[9, 5, 5]] * 2 + [[7, 7, 7]] * 2
    assert both["prompt_mask"].tolist() == [[0, 1, 1]] * 2 + [[1, 1, 1]] * 2
    assert both["completion_ids"].tolist() == [[6, 6]] * 2 + [[8, 9]] * 2
    assert both["accuracy"].tolist() == [0, 0, 0.5, 1]
