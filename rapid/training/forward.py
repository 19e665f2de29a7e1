"""The log-probabilities of a pass, (N, T), with the gradient of the policy.

With shared prompts and without, the numbers are the same up to rounding. The model's forward is the
one that TRL patched: with `fused_lm_head` it returns log-probabilities at the sampling temperature
and never holds all logits, see `rapid.training.head`.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from rapid.training.batches import FORWARD, Batch
from rapid.training.caches import (
    CACHE,
    can_share_prompts,
    has_absolute_positions,
    positions,
    prefilled,
    sees_padding,
    unwrapped,
)
from rapid.training.head import own_head

IGNORED = -100  # a label that is not scored
WHOLE_LOGITS = 2**25  # of a pass on a CPU, up to which they are held: nothing is computed twice
RANDOM = ("drop", "jitter", "noise")  # in names of probabilities and widths that are for training


def completion_logp(
    model,
    piece: Batch,
    group_size: int,
    temperature: float,
    share_prefill: bool,
    learn_entropy: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Return log pi of each completion token and the entropy of its distribution, (N, T), nats.

    At padding they have no meaning. Where the model's forward computes no entropy, it is None.

    Args:
        piece: `prompt_ids`, `prompt_mask` (N, P), `completion_ids`, `completion_mask` (N, T); the
            rows of a group are contiguous and have one prompt.
        share_prefill: compute each prompt once for its whole group, where `can_share_prompts`.
        learn_entropy: whether entropies need a gradient. They may have one anyway.
    """
    with own_head(model):
        if (piece["prompt_mask"] == 0).any() and sees_padding(model):
            return _by_prompt_length(model, piece)
        if share_prefill and can_share_prompts(model):
            return _with_shared_prompts(model, piece, group_size, temperature, learn_entropy)
        return _plain(model, piece)


def _plain(model, piece: Batch) -> tuple[Tensor, Tensor | None]:
    """Return what `completion_logp` does, from one forward pass of prompts and completions."""
    ids = torch.cat([piece["prompt_ids"], piece["completion_ids"]], dim=1)  # (N, P + T)
    mask = torch.cat([piece["prompt_mask"], piece["completion_mask"]], dim=1)
    labels = ids.masked_fill(mask == 0, IGNORED)
    width = piece["completion_ids"].size(1)
    labels[:, :-width] = IGNORED
    where = {"position_ids": positions(mask)} if has_absolute_positions(model) else {}
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True, **where)
    entropy = output.entropy
    return output.log_probs[:, -width:], None if entropy is None else entropy[:, -width:]


def _by_prompt_length(model, piece: Batch) -> tuple[Tensor, Tensor | None]:
    """Return what `completion_logp` does, from a forward pass for each length of prompts.

    Processes train on prompts of one length in a pass, for they have to make as many forward passes
    as each other. Without a gradient the model by itself makes them, and nobody has to wait.
    """
    model = model if torch.is_grad_enabled() else unwrapped(model)
    lengths, width = piece["prompt_mask"].sum(1), piece["prompt_ids"].size(1)
    order, found = [], []
    for length in lengths.unique().tolist():
        order.append((lengths == length).nonzero().flatten())
        part = {name: piece[name][order[-1]] for name in FORWARD}
        for name in ("prompt_ids", "prompt_mask"):
            part[name] = part[name][:, width - length :]
        found.append(_plain(model, part))
    back = torch.cat(order).argsort()
    entropies = [entropy for _, entropy in found if entropy is not None]
    logp = torch.cat([logp for logp, _ in found])[back]
    return logp, torch.cat(entropies)[back] if entropies else None


def _with_shared_prompts(
    model, piece: Batch, group_size: int, temperature: float, learn_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    prompts = piece["prompt_ids"][::group_size]  # (K, P)
    prompt_mask = piece["prompt_mask"][::group_size]
    ids, mask = piece["completion_ids"], piece["completion_mask"]  # (N, T)
    prompt, cache = prefilled(model, prompts, prompt_mask)
    cache.batch_repeat_interleave(group_size)
    logits = prompt.logits[:, -1:].repeat_interleave(group_size, dim=0)  # (N, 1, V)
    logp, entropy = _scored(logits, ids[:, :1], temperature, learn_entropy)
    if ids.size(1) == 1:
        return logp, entropy
    full_mask = torch.cat([piece["prompt_mask"], mask[:, :-1]], dim=1)
    following = {
        "input_ids": ids[:, :-1],
        "attention_mask": full_mask,
        "position_ids": positions(full_mask)[:, -(ids.size(1) - 1) :],
        CACHE: cache,
    }
    if ids.device.type == "cpu" and ids.numel() * logits.size(-1) <= WHOLE_LOGITS:
        found = _scored(model(**following).logits, ids[:, 1:], temperature, learn_entropy)
    else:
        labels = ids[:, 1:].masked_fill(mask[:, 1:] == 0, IGNORED)
        output = model(**following, shift_labels=labels, fused_lm_head=True)
        found = output.log_probs, output.entropy
    entropies = None if found[1] is None else torch.cat([entropy, found[1]], dim=1)
    return torch.cat([logp, found[0]], dim=1), entropies


def _scored(
    logits: Tensor, ids: Tensor, temperature: float, learn_entropy: bool
) -> tuple[Tensor, Tensor]:
    """Return log pi of tokens, (N, T), and the entropies, from logits (N, T, V)."""
    precise = torch.promote_types(logits.dtype, torch.float32)
    logp = torch.log_softmax(logits.to(precise) / temperature, dim=-1)
    of_all = logp if learn_entropy else logp.detach()
    entropy = -(of_all.exp() * of_all).nan_to_num().sum(-1)
    return logp.gather(-1, ids.unsqueeze(-1)).squeeze(-1), entropy


def without_dropout(model) -> None:
    """Make a model compute the same while it is trained as otherwise, also in its adapters.

    Layers of dropout have a probability `p`; others keep theirs in a number, or one per adapter, or
    read it from their configuration in each forward pass (Falcon).
    """
    for module in model.modules():
        config = vars(module).get("config")
        if isinstance(config, PreTrainedConfig) and not hasattr(module, "save_pretrained"):
            module.config = _quiet(config)
        if "Dropout" in type(module).__name__ and hasattr(module, "p"):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if _is_random(name):
                if isinstance(value, float):
                    setattr(module, name, 0.0)
                elif isinstance(value, dict):
                    value.update(dict.fromkeys(value, 0.0))


def has_dropout(model) -> bool:
    """Return whether there is something that `without_dropout` leaves out, used or not."""
    for module in model.modules():
        config = vars(module).get("config")
        if isinstance(config, PreTrainedConfig) and _quiet(config) is not config:
            return True
        if "Dropout" in type(module).__name__ and getattr(module, "p", False):
            return True
        for name, value in vars(module).items():
            values = value.values() if isinstance(value, dict) else [value]
            if _is_random(name) and any(isinstance(one, float) and one for one in values):
                return True
    return False


def patch_adaption_prompts(model) -> None:
    """Let PEFT's adaption prompts call the forward that TRL patched; they keep that before."""
    tuner: Any = getattr(model, "base_model", None)
    if type(tuner).__name__ == "AdaptionPromptModel":
        tuner.forward = tuner.model.forward


def _quiet(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return a view of a configuration that says 0 of all dropout; it follows its other changes."""
    random = [n for n, p in vars(config).items() if _is_random(n) and isinstance(p, float) and p]
    if not random:
        return config
    zeros = {name: property(lambda _: 0.0) for name in random}
    view: PreTrainedConfig = object.__new__(type(type(config).__name__, (type(config),), zeros))
    object.__setattr__(view, "__dict__", vars(config))
    return view


def _is_random(name: str) -> bool:
    return any(word in name for word in RANDOM)
