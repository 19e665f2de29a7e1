"""The loss of a pass: one of the pure objectives, with its configuration and its share."""

import torch
from torch import Tensor

from rapid.objectives import dapo_loss, grpo_loss, pg_loss, rapid_loss
from rapid.training.batches import Batch
from rapid.training.config import RapidConfig


def pass_loss(
    args: RapidConfig, logp: Tensor, piece: Batch, group_size: int
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """The loss of a pass, times the share of its mini-batch that it is; its metrics; their weight.

    All are 0-d. Metrics of grpo and dapo are of tokens, rapid's of completions, and weigh accordingly.

    Args:
        logp: (N, T) log pi, with the gradient.
        piece: masks, rewards and, where they differ from it, the other policies' log-probabilities.
    """
    mask, rewards = piece["completion_mask"], piece["rewards"]
    behavior_logp = piece.get("behavior_logp", logp.detach())
    share, weight = piece.get("sequence_share"), piece.get("sequence_share")
    match args.objective:
        case "rapid":
            loss, metrics = rapid_loss(
                logp,
                behavior_logp,
                mask,
                rewards,
                group_size,
                args.eta,
                args.clip,
                args.baseline,
                args.weighted,
            )
        case "pg":
            loss, metrics = pg_loss(logp, mask, rewards, group_size)
        case "grpo":
            reference_logp = piece.get("reference_logp", logp.detach())
            loss, metrics = grpo_loss(
                logp,
                behavior_logp,
                reference_logp,
                mask,
                rewards,
                group_size,
                args.beta,
                args.epsilon,
            )
            weight = piece.get("token_share")
        case "dapo":
            high = args.epsilon if args.epsilon_high is None else args.epsilon_high
            loss, metrics = dapo_loss(
                logp, behavior_logp, mask, rewards, group_size, args.epsilon, high
            )
            share = weight = piece.get("token_share")
    if "sampler_logp" in piece and "behavior_logp" not in piece:
        off = (piece["sampler_logp"] - logp.detach()).abs().nan_to_num() * mask
        metrics["sampler_mismatch"] = off.sum() / mask.sum().clamp(min=1)
    if share is None:  # not a part of anything: an evaluation's batch
        return loss, metrics, torch.ones_like(loss)
    return loss * share, metrics, weight
