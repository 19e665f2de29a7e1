"""Splitting, and replacing groups of, a sampled batch."""

import pytest
import torch

from rapid.batches import micro_batches, replace_groups, without_signal


def batch(rows=8, width=3):
    ids = torch.arange(rows)[:, None].expand(rows, width).clone()
    mask = torch.ones(rows, width, dtype=torch.long)
    return {
        "prompt_ids": ids,
        "prompt_mask": mask.clone(),
        "completion_ids": ids,
        "completion_mask": mask,
        "total": torch.tensor(24),
    }


def test_splitting_keeps_order_and_loses_nothing():
    pieces = micro_batches(batch(), steps=2, passes=2)
    assert [piece["completion_ids"][:, 0].tolist() for piece in pieces] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]


def test_shares_sum_to_one_in_each_mini_batch():
    whole = batch()
    whole["completion_mask"][0, 1:] = 0
    whole["completion_mask"][5] = 0
    pieces = micro_batches(whole, steps=2, passes=2)
    for step in (pieces[:2], pieces[2:]):
        assert sum(piece["sequence_share"].item() for piece in step) == 1
        assert sum(piece["token_share"].item() for piece in step) == pytest.approx(1)
    assert pieces[0]["token_share"].item() == pytest.approx(4 / 10)


def test_a_micro_batch_is_as_wide_as_its_own_longest_rows():
    whole = batch()
    whole["prompt_mask"][:4, 0] = 0  # padded on the left
    whole["completion_mask"][2:4, 1:] = 0  # padded on the right
    whole["completion_ids"] = torch.arange(24).view(8, 3)
    first, second, *_ = micro_batches(whole, steps=2, passes=2)
    assert first["prompt_ids"].shape == second["prompt_mask"].shape == (2, 2)
    assert first["completion_ids"].shape == (2, 3)
    assert second["completion_ids"].tolist() == [[6], [9]]
    assert second["completion_mask"].all()


def test_groups_without_signal():
    rewards = torch.tensor([0.0, 0, 1, 0, 1, 1, 0.5, 0])
    assert without_signal(rewards, 2).tolist() == [0, 2]
    assert without_signal(torch.tensor([1.0, 0, 0, 0]), 2).tolist() == [1]


def test_replaced_groups_are_padded_on_their_own_side():
    old = {"prompt_ids": torch.full((4, 2), 5), "completion_ids": torch.full((4, 2), 6)}
    new = {"prompt_ids": torch.full((2, 3), 7), "completion_ids": torch.full((2, 1), 8)}
    old |= {"prompt_mask": torch.ones(4, 2), "rewards": torch.zeros(4)}
    new |= {"prompt_mask": torch.ones(2, 3), "rewards": torch.ones(2)}
    both = replace_groups(old, new, torch.tensor([1]), group_size=2, pad_id=9)
    assert both["prompt_ids"].tolist() == [[9, 5, 5]] * 2 + [[7, 7, 7]] * 2
    assert both["prompt_mask"].tolist() == [[0, 1, 1]] * 2 + [[1, 1, 1]] * 2
    assert both["completion_ids"].tolist() == [[6, 6]] * 2 + [[8, 9]] * 2
    assert both["rewards"].tolist() == [0, 0, 1, 1]
