"""Splitting, and replacing groups of, a sampled batch."""

import random
from itertools import pairwise

import pytest
import torch

from rapid.training.batches import (
    RecentRows,
    endless,
    group_widths,
    mini_batches,
    own_part,
    pack,
    part_of_group,
    passes,
    replaced,
    share_out,
    take,
    with_shares,
    without_weight,
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


def test_mini_batches_keep_order_and_lose_nothing():
    pieces = mini_batches(batch(), 2)
    assert [piece["completion_ids"][:, 0].tolist() for piece in pieces] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


def test_shares_sum_to_one_over_everything_that_could_be_run():
    whole = batch()
    whole["completion_mask"][0, 1:] = 0
    whole["completion_mask"][5] = 0
    pieces = [with_shares(take(whole, groups, 2, True), whole, 1) for groups in ([0], [1, 2], [3])]
    assert sum(piece["sequence_share"].item() for piece in pieces) == 1
    assert sum(piece["token_share"].item() for piece in pieces) == pytest.approx(1)
    assert pieces[0]["token_share"].item() == pytest.approx(4 / 19)


def test_shares_make_up_for_the_mean_over_processes():
    piece = with_shares(take(batch(), [0], 2, True), batch(), processes=2)
    assert piece["sequence_share"] == piece["token_share"] == 0.5


def test_an_idle_pass_has_no_weight():
    piece = without_weight(take(batch(), [0], 2, True))
    assert piece["sequence_share"] == piece["token_share"] == 0
    assert not piece["completion_mask"].any()  # in no count of tokens either


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


def test_widths_are_of_the_longest_in_each_group():
    whole = batch(4)
    whole["completion_mask"][0, 1:] = 0
    whole["completion_mask"][2:, 2:] = 0
    assert group_widths(whole, 2) == [(3, 3), (3, 2)]


WIDTHS = [(10, random.Random(i).randint(1, 50)) for i in range(40)]


class TestPack:
    def test_every_group_is_in_one_pass(self):
        packed = pack(range(40), WIDTHS, 4, 400)
        assert sorted(group for one in packed for group in one) == list(range(40))

    def test_no_pass_of_several_groups_exceeds_the_budget(self):
        for one in pack(range(40), WIDTHS, 4, 400):
            prompt, completion = (max(WIDTHS[g][i] for g in one) for i in (0, 1))
            assert len(one) == 1 or len(one) * 4 * (prompt + completion) <= 400

    def test_the_next_group_would_not_have_fitted(self):
        packed = pack(range(40), WIDTHS, 4, 400)
        for one, after in pairwise(packed):
            width = max(sum(WIDTHS[g]) for g in one)
            assert (len(one) + 1) * 4 * width > 400 or after == []

    def test_a_group_wider_than_the_budget_has_a_pass_of_its_own(self):
        assert pack([0, 1], [(5, 100), (5, 5)], 2, 30) == [[0], [1]]

    def test_padding_is_little(self):
        packed = pack(range(40), WIDTHS, 4, 400)
        padded = sum(len(one) * max(sum(WIDTHS[g]) for g in one) for one in packed)
        assert sum(map(sum, WIDTHS)) / padded > 0.9


class TestShareOut:
    def test_every_group_has_one_process(self):
        shares = share_out(range(1, 40), [sum(width) for width in WIDTHS], 3)
        assert sorted(group for share in shares for group in share) == list(range(1, 40))

    def test_loads_differ_by_less_than_one_group(self):
        costs = [sum(width) for width in WIDTHS]
        loads = [sum(costs[g] for g in share) for share in share_out(range(40), costs, 4)]
        assert max(loads) - min(loads) <= max(costs)

    def test_fewer_groups_than_processes(self):
        assert share_out([5], [1] * 6, 3) == [[5], [], []]


class TestPasses:
    def whole(self):
        made = batch(24)
        made["completion_mask"][::3, 1:] = 0
        return made

    def of(self, groups, processes=2, **settings):
        settings = {"size": 2, "budget": 30, **settings}
        return [
            passes(self.whole(), groups, 2, processes=processes, process=process, **settings)
            for process in range(processes)
        ]

    def test_processes_make_as_many(self):
        first, second = self.of([0, 1, 4])
        assert len(first) == len(second)

    def test_shares_average_to_the_part_that_is_run(self):
        for settings in ({}, {"budget": None}):
            both = self.of([0, 1, 4, 7, 9], **settings)
            shares = [sum(p["sequence_share"].item() for p in process) for process in both]
            assert sum(shares) / 2 == pytest.approx(5 / 12)

    def test_a_process_without_work_takes_part_without_weight(self):
        *_, idle = self.of([1, 3, 5], processes=4)
        assert [piece["sequence_share"].item() for piece in idle] == [0]

    def test_without_anything_to_run_there_is_no_pass_unless_one_is_needed(self):
        assert self.of([]) == [[], []]
        assert [len(process) for process in self.of([], least=1)] == [1, 1]

    def test_without_a_budget_passes_are_in_order_and_as_wide_as_the_batch(self):
        (made,) = self.of([0, 1, 2], processes=1, budget=None)
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


class TestTornPass:
    def of(self, groups, processes):
        whole = batch(12) | {"rewards": torch.arange(12.0)}
        whole["completion_mask"][::3, 1:] = 0
        settings = {"processes": processes, "size": 2, "budget": 100}
        made = [passes(whole, groups, 4, process=p, **settings) for p in range(processes)]
        assert all(len(process) == 1 for process in made)
        return [process[0] for process in made]

    def test_processes_run_each_completion_once_and_see_all(self):
        made = self.of([1], 4)
        assert [own_part(p)["completion_ids"][:, 0].tolist() for p in made] == [[4], [5], [6], [7]]
        assert all(piece["rewards"].tolist() == [4, 5, 6, 7] for piece in made)

    def test_a_process_has_one_prompt(self):
        made = self.of([0, 2], 4)
        own = [own_part(piece)["prompt_ids"][:, 0].tolist() for piece in made]
        assert own == [[0, 1], [2, 3], [8, 9], [10, 11]]

    def test_a_process_for_which_nothing_is_left_runs_the_last_again(self):
        own = [own_part(piece)["completion_ids"][:, 0].tolist() for piece in self.of([0], 3)]
        assert own == [[0, 1], [2, 3], [3, 3]]

    def test_all_have_the_share_of_the_whole_pass(self):
        for piece in self.of([1], 4):
            assert piece["sequence_share"].item() == pytest.approx(1 / 3)
            assert piece["token_share"].item() == pytest.approx(10 / 28)


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
    both = replaced(old, torch.tensor([0, 1]), new, group_size=2, pad_id=9)
    assert both["accuracy"].tolist() == [0, 1, 0, 0]


def test_replaced_groups_are_padded_on_their_own_side():
    old = {"prompt_ids": torch.full((4, 2), 5), "completion_ids": torch.full((4, 2), 6)}
    new = {"prompt_ids": torch.full((2, 3), 7), "completion_ids": torch.full((2, 1), 8)}
    old |= {"prompt_mask": torch.ones(4, 2), "accuracy": torch.zeros(4)}
    new |= {"prompt_mask": torch.ones(2, 3), "accuracy": torch.tensor([0.5, 1])}
    both = replaced(old, torch.tensor([1]), new, group_size=2, pad_id=9)
    assert both["prompt_ids"].tolist() == [[9, 5, 5]] * 2 + [[7, 7, 7]] * 2
    assert both["prompt_mask"].tolist() == [[0, 1, 1]] * 2 + [[1, 1, 1]] * 2
    assert both["completion_ids"].tolist() == [[6, 6]] * 2 + [[8, 9]] * 2
    assert both["accuracy"].tolist() == [0, 0, 0.5, 1]
