"""The loss of a pass: the objective's, with its share of the mini-batch."""

import torch
from torch import Tensor

from rapid.algorithms.base import Pass
from rapid.training.batches import Batch
from rapid.training.config import RapidConfig


def pass_loss(
    args: RapidConfig, logp: Tensor, piece: Batch, group_size: int
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """The loss of a pass, times the share of its mini-batch that it is; its metrics; their weight.

    All are 0-d. An objective's metrics are of tokens or of completions, and weigh accordingly.

    Args:
        logp: (N, T) log pi, with the gradient.
        piece: masks, rewards and, where they differ from it, the other policies' log-probabilities.
    """
    mask, itself = piece["completion_mask"], logp.detach()
    given = Pass(
        logp,
        piece.get("behavior_logp", itself),
        piece.get("reference_logp", itself),
        mask,
        piece["rewards"],
        group_size,
    )
    loss, metrics = args.algorithm.loss(args, given)
    share = piece.get(f"{args.algorithm.mean_over}_share")
    if "sampler_logp" in piece and "behavior_logp" not in piece:
        off = (piece["sampler_logp"] - itself).abs().nan_to_num() * mask
        metrics["sampler_mismatch"] = off.sum() / mask.sum().clamp(min=1)
    if share is None:  # not a part of anything: an evaluation's batch
        return loss, metrics, torch.ones_like(loss)
    return loss * share, metrics, piece[f"{args.algorithm.metrics_over}_share"]
