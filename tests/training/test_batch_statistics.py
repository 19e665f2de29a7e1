"""Metrics of a step are means over its micro-batches or over its mini-batch."""

import pytest
import torch

from rapid.training.batch_statistics import (
    WeightedMeans,
    compute_mini_batch_metrics,
    to_trl_metrics,
)


def test_means_weight_micro_batches_by_share():
    """Three eighths of a mini-batch were run; skipped groups do not count."""
    means = WeightedMeans(lambda values: values)
    means.add({"staleness": torch.tensor(2.0), "weight": torch.tensor(1.0)}, torch.tensor(0.25))
    means.add({"staleness": torch.tensor(5.0), "weight": torch.tensor(4.0)}, torch.tensor(0.125))
    assert means.pop_means() == ({"staleness": 3.0, "weight": 2.0}, 0.375)
    assert means.pop_means() == ({}, 0.0)


def test_means_are_over_processes():
    """The other process ran a micro-batch with half the weight and another value."""
    other_process_sums = torch.tensor([8 * 0.125, 0.125])
    means = WeightedMeans(lambda values: (values + other_process_sums) / 2)
    means.add({"weight": torch.tensor(2.0)}, torch.tensor(0.25))
    metrics, run = means.pop_means()
    assert (metrics, run) == ({"weight": 4.0}, 0.1875)


def test_micro_batch_without_weight_is_not_counted():
    means = WeightedMeans(lambda values: values)
    means.add({"weight": torch.tensor(2.0)}, torch.tensor(0.0))
    assert means.pop_means() == ({}, 0.0)


def test_metrics_get_trl_names():
    metrics = {"entropy": 2.0, "kl": 0.5, "clip_fraction": 0.75, "clip_low": 0.25, "weight": 1.0}
    assert to_trl_metrics(metrics) == {
        "entropy": 2.0,
        "kl": 0.5,
        "clip_ratio/region_mean": 0.75,
        "clip_ratio/low_mean": 0.25,
        "clip_ratio/high_mean": 0.5,
    }
    assert to_trl_metrics({"clip_fraction": 0.5})["clip_ratio/high_mean"] == 0.5
    assert to_trl_metrics({"weight": 1.0}) == {}


def test_rewards_average_over_graded_groups_and_lengths_over_all():
    mini_batch = {
        "length": torch.tensor([3, 1, 2, 2] * 2),
        "accuracy": torch.tensor([1.0, 0, 1, 1, 0, 0, 0, 0]),
        "rewards": torch.tensor([1.0, 1, 1, 0, 0, 2, 0, 0]),
        "graded": torch.tensor([True] * 6 + [False] * 2),
    }
    metrics = compute_mini_batch_metrics(mini_batch, 2, "accuracy")
    assert metrics["length"] == 2
    assert metrics["graded"] == 0.75
    assert metrics["accuracy"] == 0.5
    assert metrics["signal"] == pytest.approx(1 / 3)
    by_sums = compute_mini_batch_metrics(mini_batch, 2, "rewards")
    assert by_sums == metrics | {"signal": pytest.approx(2 / 3)}
    mini_batch["accuracy"][:2] = torch.nan  # only the second reward function graded this group
    by_known = compute_mini_batch_metrics(mini_batch, 2, "rewards")
    assert by_known == by_sums | {"accuracy": 0.5}
    mini_batch["accuracy"][:] = torch.nan
    assert "accuracy" not in compute_mini_batch_metrics(mini_batch, 2, "rewards")
    mini_batch["graded"] = torch.zeros(8, dtype=torch.bool)
    assert compute_mini_batch_metrics(mini_batch, 2, "rewards") == {"length": 2.0, "graded": 0.0}
