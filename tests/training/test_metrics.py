"""Metrics of a step, over its passes and over its mini-batch."""

import pytest
import torch

from rapid.training.metrics import WeightedMeans, compute_mini_batch_metrics, to_trl_metrics


def test_a_mean_is_of_what_was_run_however_it_is_cut():
    """Three eighths of a mini-batch were run; the rest counts nowhere."""
    means = WeightedMeans(lambda values: values)
    means.add({"staleness": torch.tensor(2.0), "weight": torch.tensor(1.0)}, torch.tensor(0.25))
    means.add({"staleness": torch.tensor(5.0), "weight": torch.tensor(4.0)}, torch.tensor(0.125))
    assert means.take() == ({"staleness": 3.0, "weight": 2.0}, 0.375)
    assert means.take() == ({}, 0.0)


def test_a_mean_is_over_processes():
    """The other process ran a pass with half the weight and another value."""
    other = torch.tensor([8 * 0.125, 0.125])
    means = WeightedMeans(lambda values: (values + other) / 2)
    means.add({"weight": torch.tensor(2.0)}, torch.tensor(0.25))
    found, run = means.take()
    assert (found, run) == ({"weight": 4.0}, 0.1875)


def test_a_pass_without_weight_says_nothing():
    means = WeightedMeans(lambda values: values)
    means.add({"weight": torch.tensor(2.0)}, torch.tensor(0.0))
    assert means.take() == ({}, 0.0)


def test_names_of_trl():
    ours = {"entropy": 2.0, "kl": 0.5, "clip_fraction": 0.75, "clip_low": 0.25, "weight": 1.0}
    assert to_trl_metrics(ours) == {
        "entropy": 2.0,
        "kl": 0.5,
        "clip_ratio/region_mean": 0.75,
        "clip_ratio/low_mean": 0.25,
        "clip_ratio/high_mean": 0.5,
    }
    assert to_trl_metrics({"clip_fraction": 0.5})["clip_ratio/high_mean"] == 0.5
    assert to_trl_metrics({"weight": 1.0}) == {}


def test_rewards_are_of_graded_groups_and_lengths_of_all():
    mini_batch = {
        "completion_mask": torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0]] * 2),
        "accuracy": torch.tensor([1.0, 0, 1, 1, 0, 0, 0, 0]),
        "rewards": torch.tensor([1.0, 1, 1, 0, 0, 2, 0, 0]),
        "graded": torch.tensor([True] * 6 + [False] * 2),
    }
    found = compute_mini_batch_metrics(mini_batch, 2, "accuracy")
    assert found["length"] == 2
    assert found["graded"] == 0.75
    assert found["accuracy"] == 0.5
    assert found["signal"] == pytest.approx(1 / 3)
    by_sums = compute_mini_batch_metrics(mini_batch, 2, "rewards")
    assert by_sums == found | {"signal": pytest.approx(2 / 3)}
    mini_batch["graded"] = torch.zeros(8, dtype=torch.bool)
    assert compute_mini_batch_metrics(mini_batch, 2, "rewards") == {"length": 2.0, "graded": 0.0}
