"""Batches are split into mini-batches and trimmed, and their groups are replaced."""

import torch

from rapid.training.batches import (
    RecentRows,
    find_groups_with_signal,
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


def test_trimmed_batch_is_as_wide_as_its_longest_rows():
    batch = make_batch()
    batch["prompt_mask"][:4, 0] = 0  # padded on the left
    batch["completion_mask"][2:4, 1:] = 0  # padded on the right
    batch["completion_ids"] = torch.arange(24).view(8, 3)
    first, second = (select_groups(batch, [group], 2, True) for group in (0, 1))
    assert first["prompt_ids"].shape == second["prompt_mask"].shape == (2, 2)
    assert first["completion_ids"].shape == (2, 3)
    assert second["completion_ids"].tolist() == [[6, 7], [9, 10]]  # two columns stay at least
    assert select_groups(batch, [1], 2, False)["completion_ids"].shape == (2, 3)
    two_groups = select_groups(batch, [3, 1], 2, True)  # group 3 is longer than group 1
    assert two_groups["prompt_ids"].shape == two_groups["completion_ids"].shape == (4, 3)


def test_group_widths_are_those_of_longest_rows():
    batch = make_batch(4)
    batch["completion_mask"][0, 1:] = 0
    batch["completion_mask"][2:, 2:] = 0
    assert group_widths(batch, 2) == [(3, 3), (3, 2)]


def test_indices_are_reshuffled_in_each_pass_as_the_seed_says():
    first_order, second_order = (shuffle_endlessly(range(5), seed=1) for _ in range(2))
    first, second = ([next(first_order) for _ in range(5)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(5))
    assert first != second
    assert [next(second_order) for _ in range(10)] == first + second


def test_only_recent_rows_stay_decoded():
    decoded_rows = []

    class Rows:
        def __len__(self):
            return 9

        def __getitem__(self, index):
            decoded_rows.append(index)
            return {"row": index}

    recent = RecentRows(Rows(), 3)
    for first in (0, 3, 6):
        for _ in range(4):
            assert [recent[first + i]["row"] for i in range(3)] == [first, first + 1, first + 2]
    assert decoded_rows == list(range(9))
    assert len(recent) == 9
    assert recent[0]["row"] == decoded_rows[-1] == 0  # row 0 is decoded again


def test_groups_with_signal_replace_groups_without():
    old = {"prompt_ids": torch.full((4, 2), 5), "completion_ids": torch.full((4, 2), 6)}
    new = {"prompt_ids": torch.full((4, 3), 7), "completion_ids": torch.full((4, 1), 8)}
    old |= {"prompt_mask": torch.ones(4, 2), "accuracy": torch.zeros(4)}
    new |= {"prompt_mask": torch.ones(4, 3), "accuracy": torch.tensor([1, 1, 0.5, 1])}
    old["rewards"], new["rewards"] = old["accuracy"], new["accuracy"]
    groups = torch.tensor([1, 0])  # only one is replaced, as only one new group has signal
    merged = replace_groups(old, groups, new, group_size=2, pad_id=9, signal_column="accuracy")
    assert merged["prompt_ids"].tolist() == [[9, 5, 5]] * 2 + [[7, 7, 7]] * 2
    assert merged["prompt_mask"].tolist() == [[0, 1, 1]] * 2 + [[1, 1, 1]] * 2
    assert merged["completion_ids"].tolist() == [[6, 6]] * 2 + [[8, 9]] * 2
    assert merged["accuracy"].tolist() == [0, 0, 0.5, 1]


def test_groups_without_accuracy_have_signal_if_rewards_differ():
    nan = torch.nan
    batch = {
        "rewards": torch.tensor([1.0, 0, 1, 1, 1, 0, 1, 1]),
        "accuracy": torch.tensor([nan, nan, nan, 0, 0, 0, 0, 1]),
    }
    has_signal = find_groups_with_signal(batch, 2, "accuracy")
    assert has_signal.tolist() == [True, False, False, True]


def test_mini_batches_keep_order_and_row_numbers():
    first, second = split_mini_batches(make_batch(8), 2)
    assert first["completion_ids"][:, 0].tolist() == [0, 1, 2, 3]
    assert second["completion_ids"][:, 0].tolist() == [4, 5, 6, 7]
    assert second["row"].tolist() == [0, 1, 2, 3]
