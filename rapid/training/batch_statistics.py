"""Metrics of an optimizer step: means over its micro-batches, and statistics of its mini-batch.

To add a metric, declare it in `rapid/artifacts/metrics.py`, and compute it here or in the loss of
an algorithm.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rapid.training.batches import Batch, find_groups_with_signal, select_rows


class WeightedMeans:
    """Means over micro-batches, each weighted by its share of the mini-batch.

    Args:
        reduce: returns the mean of a tensor over processes. It is called once per optimizer step,
            with the sums over all micro-batches of this process.
    """

    def __init__(self, reduce: Callable[[Tensor], Tensor]):
        self._reduce = reduce
        self._names: list[str] = []
        # For each micro-batch, its metrics times its weight, and the weight.
        self._weighted: list[Tensor] = []

    def add(self, metrics: dict[str, Tensor], weight: Tensor) -> None:
        """Add the metrics of a micro-batch, 0-d each. All calls of a step have the same names."""
        self._names = list(metrics)
        weighted = [value * weight for value in metrics.values()]
        self._weighted.append(torch.stack([*weighted, weight]).float())

    def discard(self) -> None:
        """Drop the metrics that were added since the last call of `pop_means`."""
        self._weighted = []

    def pop_means(self) -> tuple[dict[str, float], float]:
        """Return the means over the micro-batches since the last call, and the sum of the weights.

        The means are over the micro-batches of all processes. The sum of the weights is averaged
        over processes. The result is ({}, 0) if no micro-batch was added, or if all weights are 0.
        """
        if not self._weighted:
            return {}, 0.0
        sums, self._weighted = sum(self._weighted, self._weighted[0].new_zeros(())), []
        *values, weight = self._reduce(sums).tolist()
        if not weight:
            return {}, 0.0
        return {n: v / weight for n, v in zip(self._names, values, strict=True)}, weight


def to_trl_metrics(means: dict[str, float]) -> dict[str, float]:
    """Return those of the metrics that TRL logs too, by TRL's names.

    TRL's clip_ratio is the share of tokens whose probability ratio is clipped. RAPID clips the
    importance weight of a whole completion to eta, so that its clip_ratio is a share of
    completions.
    """
    trl_metrics: dict[str, float] = {
        name: means[name] for name in ("entropy", "kl") if name in means
    }
    if "clip_fraction" in means:
        # "low" and "high": clipped at the lower and at the upper bound of the ratio.
        both, low = means["clip_fraction"], means.get("clip_low", 0.0)
        ratios = {"region_mean": both, "low_mean": low, "high_mean": max(both - low, 0.0)}
        trl_metrics |= {f"clip_ratio/{name}": value for name, value in ratios.items()}
    return trl_metrics


def compute_mini_batch_metrics(
    mini_batch: Batch, group_size: int, signal_column: str
) -> dict[str, float]:
    """Return the metrics of a mini-batch that need no forward pass.

    `length` is the mean number of sampled tokens of a completion, and `graded` the share of
    completions in graded groups. The other metrics are over graded groups, and missing if there are
    none: `accuracy`, the mean of those that are known, and `signal`, the share of groups that
    `find_groups_with_signal` finds.
    """
    graded = mini_batch["graded"]
    metrics = {
        "length": mini_batch["length"].float().mean(),
        "graded": graded.float().mean(),
    }
    if graded.any():
        columns = {name: mini_batch[name] for name in ("rewards", "accuracy")}
        columns = select_rows(columns, graded)
        accuracy = columns["accuracy"]
        is_known = ~accuracy.isnan()
        if is_known.any():
            metrics["accuracy"] = accuracy[is_known].mean()
        has_signal = find_groups_with_signal(columns, group_size, signal_column)
        metrics["signal"] = has_signal.to(accuracy.dtype).mean()
    return dict(zip(metrics, torch.stack(list(metrics.values())).tolist(), strict=True))
