"""Metrics of an optimizer step, from its passes in all processes and from its mini-batch.

`rapid.artifacts.metrics` declares those that a run's files have.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rapid.algorithms.groups import active_groups
from rapid.training.batches import Batch, loss_mask


class WeightedMeans:
    """Means over passes, each weighted by its share of the mini-batch.

    `reduce` gives the mean of a tensor over processes: once an optimizer step, of all its passes.
    """

    def __init__(self, reduce: Callable[[Tensor], Tensor]):
        self._reduce = reduce
        self._names: list[str] = []
        self._sums: list[Tensor] = []  # of each pass: weighted metrics, and the weight

    def add(self, metrics: dict[str, Tensor], weight: Tensor) -> None:
        """Add a pass's metrics, 0-d each. The passes of a step have the same ones."""
        self._names = list(metrics)
        weighted = [value * weight for value in metrics.values()]
        self._sums.append(torch.stack([*weighted, weight]).float())

    def discard(self) -> None:
        """Forget what was added since the last call of `take`."""
        self._sums = []

    def take(self) -> tuple[dict[str, float], float]:
        """Return the means since the last call, and the sum of the weights; ({}, 0) of nothing."""
        if not self._sums:
            return {}, 0.0
        sums, self._sums = sum(self._sums, self._sums[0].new_zeros(())), []
        *values, weight = self._reduce(sums).tolist()
        if not weight:
            return {}, 0.0
        return {n: v / weight for n, v in zip(self._names, values, strict=True)}, weight


def to_trl_metrics(means: dict[str, float]) -> dict[str, float]:
    """Return those of a step's metrics that TRL has too, by TRL's names.

    The ratios that are clipped are tokens' or, with RAPID, completions', whose weight is above eta.
    """
    trl_metrics: dict[str, float] = {
        name: means[name] for name in ("entropy", "kl") if name in means
    }
    if "clip_fraction" in means:
        both, low = means["clip_fraction"], means.get("clip_low", 0.0)
        ratios = {"region_mean": both, "low_mean": low, "high_mean": max(both - low, 0.0)}
        trl_metrics |= {f"clip_ratio/{name}": value for name, value in ratios.items()}
    return trl_metrics


def compute_mini_batch_metrics(
    mini_batch: Batch, group_size: int, signal_column: str
) -> dict[str, float]:
    """Return metrics of a mini-batch; those of rewards are of its graded groups, if any.

    Args:
        signal_column: the column of rewards that differ in a group with signal.
    """
    graded = mini_batch["graded"]
    metrics = {
        "length": loss_mask(mini_batch).sum(1).float().mean(),
        "graded": graded.float().mean(),
    }
    if graded.any():
        accuracy = mini_batch["accuracy"][graded]
        has_signal = active_groups("unequal", mini_batch[signal_column][graded], group_size)
        metrics |= {
            "accuracy": accuracy.mean(),
            "signal": has_signal.to(accuracy.dtype).mean(),
        }
    return dict(zip(metrics, torch.stack(list(metrics.values())).tolist(), strict=True))
