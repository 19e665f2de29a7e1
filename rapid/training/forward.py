"""Computes log-probabilities and entropies of a micro-batch's completions, with gradient.

A prompt that several completions share can be computed once; the results are equal up to rounding.
TRL patches the forward method of the model: with `fused_lm_head` it returns log-probabilities at
the sampling temperature, and does not hold all logits at once (see `rapid.training.head`).

Shapes: N completions, K prompts, P prompt tokens, T completion tokens, V words of the vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rapid.training.batches import FORWARD_COLUMNS, Batch
from rapid.training.caches import (
    CACHE,
    can_share_prompts,
    count_positions,
    depends_on_padding,
    has_absolute_positions,
    prefill_prompts,
    unwrap_model,
)
from rapid.training.head import patch_head

IGNORED_LABEL = -100  # the label of tokens that are not scored
# On a CPU, the logits of a micro-batch are all held in memory if there are at most this many. If
# there are more, the fused head computes them in parts, in the forward pass and again in the
# backward pass.
MAX_WHOLE_LOGITS = 2**25


def compute_completion_logps(
    model,
    batch: Batch,
    group_size: int,
    temperature: float,
    share_prefill: bool,
    needs_entropy_gradient: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Return log pi of each completion token and the entropy of its distribution, (N, T), nats.

    Values at padding are arbitrary. The entropy is None if the model's forward does not compute it.

    Args:
        model: the policy, or a wrapper of it such as DDP.
        batch: `prompt_ids`, `prompt_mask` (N, P), `completion_ids`, `completion_mask` (N, T).
        group_size: each `group_size` consecutive rows have the same prompt.
        temperature: the sampling temperature, by which logits are divided here. TRL's patch has the
            same temperature, by which the fused head divides.
        share_prefill: compute each prompt once for its group, if `can_share_prompts(model)`.
        needs_entropy_gradient: if False, entropies may have no gradient.
    """
    with patch_head(model):
        if (batch["prompt_mask"] == 0).any() and depends_on_padding(model):
            return _score_by_prompt_length(model, batch)
        if share_prefill and can_share_prompts(model):
            return _score_with_shared_prompts(
                model, batch, group_size, temperature, needs_entropy_gradient
            )
        return _score_plainly(model, batch)


def _score_plainly(model, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Return log pi and entropies from one forward pass of prompts and completions together.

    No temperature is needed: the fused head divides logits by the temperature of TRL's patch.
    """
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)  # (N, P + T)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    labels = ids.masked_fill(mask == 0, IGNORED_LABEL)
    length = batch["completion_ids"].size(1)
    labels[:, :-length] = IGNORED_LABEL
    more_inputs = {"position_ids": count_positions(mask)} if has_absolute_positions(model) else {}
    output = model(
        input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True, **more_inputs
    )
    entropy = output.entropy
    return output.log_probs[:, -length:], None if entropy is None else entropy[:, -length:]


def _score_by_prompt_length(model, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Return log pi and entropies from one forward pass per prompt length, without padded prompts.

    This is for models for which `depends_on_padding` is True. With a gradient, processes must make
    equally many forward passes, so all prompts of such a batch have the same length
    (`same_prompt_length` of `micro_batches.make_chunks`). Without a gradient the number of passes
    may differ between processes: the model is unwrapped, so that processes do not wait for each
    other in DDP.
    """
    model = model if torch.is_grad_enabled() else unwrap_model(model)
    lengths, padded_length = batch["prompt_mask"].sum(1), batch["prompt_ids"].size(1)
    rows_by_length, scores = [], []
    for length in lengths.unique().tolist():
        rows = (lengths == length).nonzero().flatten()
        rows_by_length.append(rows)
        part = {name: batch[name][rows] for name in FORWARD_COLUMNS}
        for name in ("prompt_ids", "prompt_mask"):
            part[name] = part[name][:, padded_length - length :]
        scores.append(_score_plainly(model, part))
    original_order = torch.cat(rows_by_length).argsort()
    entropies = [entropy for _, entropy in scores if entropy is not None]
    logp = torch.cat([logp for logp, _ in scores])[original_order]
    return logp, torch.cat(entropies)[original_order] if entropies else None


def _score_with_shared_prompts(
    model, batch: Batch, group_size: int, temperature: float, needs_entropy_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return log pi and entropies from a pass of K prompts and a pass of N completions.

    The second pass reads the cache of the first. The first token of a completion is predicted by
    the last token of its prompt, and so comes from the first pass.
    """
    prompts = batch["prompt_ids"][::group_size]  # (K, P)
    prompt_mask = batch["prompt_mask"][::group_size]
    ids, mask = batch["completion_ids"], batch["completion_mask"]  # (N, T)
    prompt_output, cache = prefill_prompts(model, prompts, prompt_mask)
    cache.batch_repeat_interleave(group_size)
    logits = prompt_output.logits[:, -1:].repeat_interleave(group_size, dim=0)  # (N, 1, V)
    logp, entropy = _score_logits(logits, ids[:, :1], temperature, needs_entropy_gradient)
    if ids.size(1) == 1:
        return logp, entropy
    full_mask = torch.cat([batch["prompt_mask"], mask[:, :-1]], dim=1)
    later_inputs = {
        "input_ids": ids[:, :-1],
        "attention_mask": full_mask,
        "position_ids": count_positions(full_mask)[:, -(ids.size(1) - 1) :],
        CACHE: cache,
    }
    if ids.device.type == "cpu" and ids.numel() * logits.size(-1) <= MAX_WHOLE_LOGITS:
        later_logp, later_entropy = _score_logits(
            model(**later_inputs).logits, ids[:, 1:], temperature, needs_entropy_gradient
        )
    else:
        labels = ids[:, 1:].masked_fill(mask[:, 1:] == 0, IGNORED_LABEL)
        output = model(**later_inputs, shift_labels=labels, fused_lm_head=True)
        later_logp, later_entropy = output.log_probs, output.entropy
    entropies = None if later_entropy is None else torch.cat([entropy, later_entropy], dim=1)
    return torch.cat([logp, later_logp], dim=1), entropies


def _score_logits(
    logits: Tensor, ids: Tensor, temperature: float, needs_entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return log pi of tokens and the entropies, (N, T) each, from logits, (N, T, V)."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    logp = torch.log_softmax(logits.to(dtype) / temperature, dim=-1)
    values = logp if needs_entropy_gradient else logp.detach()
    # For words of probability 0 the product is 0 * -inf, which is NaN.
    entropy = -(values.exp() * values).nan_to_num().sum(-1)
    return logp.gather(-1, ids.unsqueeze(-1)).squeeze(-1), entropy


@contextmanager
def avoid_cudnn_attention() -> Iterator[None]:
    """Within this context, torch does not choose cuDNN's kernels for attention if it has others.

    On Hopper and later GPUs it would. But cuDNN makes a plan for each new shape of its inputs, and
    the shapes of micro-batches vary from step to step. The choice holds for the whole process.
    """
    backends = torch.backends.cuda
    was_enabled = backends.cudnn_sdp_enabled()
    if backends.flash_sdp_enabled() or backends.mem_efficient_sdp_enabled():
        backends.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        backends.enable_cudnn_sdp(was_enabled)


def patch_adaption_prompt_adapter(model) -> None:
    """Let PEFT's AdaptionPrompt adapter (LLaMA-Adapter) use the forward method that TRL patched.

    The adapter refers to the forward method that the model had before TRL's patch.
    """
    tuner: Any = getattr(model, "base_model", None)
    if type(tuner).__name__ == "AdaptionPromptModel":
        tuner.forward = tuner.model.forward
