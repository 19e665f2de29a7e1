"""Splitting, and replacing groups of, a sampled batch."""

import torch

from rapid.training.batches import (
    RecentRows,
    group_widths,
    replace_groups,
    select_groups,
    shuffle_endlessly,
    split_mini_batches,
)


def make_batch(rows=8, width=3):
    ids = torch.arange(rows)[:, None].expand(rows, width).clone()
    mask = torch.ones(rows, width, dtype=torch.long)
    return {
        "prompt_ids": ids,
        "prompt_mask": mask.clone(),
        "completion_ids": ids,
        "completion_mask": mask,
    }


def test_a_trimmed_batch_is_as_wide_as_its_longest_rows():
    batch = make_batch()
    batch["prompt_mask"][:4, 0] = 0  # padded on the left
    batch["completion_mask"][2:4, 1:] = 0  # padded on the right
    batch["completion_ids"] = torch.arange(24).view(8, 3)
    first, second = (select_groups(batch, [group], 2, True) for group in (0, 1))
    assert first["prompt_ids"].shape == second["prompt_mask"].shape == (2, 2)
    assert first["completion_ids"].shape == (2, 3)
    assert second["completion_ids"].tolist() == [[6, 7], [9, 10]]  # in as many calls of the model
    assert select_groups(batch, [1], 2, False)["completion_ids"].shape == (2, 3)
    both = select_groups(batch, [3, 1], 2, True)  # of which the one is longer
    assert both["prompt_ids"].shape == both["completion_ids"].shape == (4, 3)


def test_widths_are_of_the_longest_in_each_group():
    batch = make_batch(4)
    batch["completion_mask"][0, 1:] = 0
    batch["completion_mask"][2:, 2:] = 0
    assert group_widths(batch, 2) == [(3, 3), (3, 2)]


def test_spare_prompts_are_all_prompts_again_and_again_and_alike_everywhere():
    here, elsewhere = (shuffle_endlessly(range(5), seed=1) for _ in range(2))
    first, second = ([next(here) for _ in range(5)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(5))
    assert first != second
    assert [next(elsewhere) for _ in range(10)] == first + second


def test_only_as_many_rows_stay_decoded_as_are_asked_for_again():
    decoded = []

    class Rows:
        def __len__(self):
            return 9

        def __getitem__(self, index):
            decoded.append(index)
            return {"row": index}

    recent = RecentRows(Rows(), 3)
    for first in (0, 3, 6):
        for _ in range(4):
            assert [recent[first + i]["row"] for i in range(3)] == [first, first + 1, first + 2]
    assert decoded == list(range(9))
    assert len(recent) == 9
    assert recent[0]["row"] == decoded[-1] == 0  # not kept so long


def test_groups_with_signal_replace_others_padded_on_their_own_side():
    old = {"prompt_ids": torch.full((4, 2), 5), "completion_ids": torch.full((4, 2), 6)}
    new = {"prompt_ids": torch.full((4, 3), 7), "completion_ids": torch.full((4, 1), 8)}
    old |= {"prompt_mask": torch.ones(4, 2), "accuracy": torch.zeros(4)}
    new |= {"prompt_mask": torch.ones(4, 3), "accuracy": torch.tensor([1, 1, 0.5, 1])}
    groups = torch.tensor([1, 0])  # of which one is replaced: the other new one has no signal
    both = replace_groups(old, groups, new, group_size=2, pad_id=9, signal="accuracy")
    assert both["prompt_ids"].tolist() == [[9, 5, 5]] * 2 + [[7, 7, 7]] * 2
    assert both["prompt_mask"].tolist() == [[0, 1, 1]] * 2 + [[1, 1, 1]] * 2
    assert both["completion_ids"].tolist() == [[6, 6]] * 2 + [[8, 9]] * 2
    assert both["accuracy"].tolist() == [0, 0, 0.5, 1]


def test_mini_batches_are_in_order_and_know_their_rows():
    first, second = split_mini_batches(make_batch(8), 2)
    assert first["completion_ids"][:, 0].tolist() == [0, 1, 2, 3]
    assert second["completion_ids"][:, 0].tolist() == [4, 5, 6, 7]
    assert second["row"].tolist() == [0, 1, 2, 3]
