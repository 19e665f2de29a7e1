"""Caches of prompts, and which models can go on from them."""

from dataclasses import fields
from inspect import signature
from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

# The name of a model's argument, and of its output, that is a cache: "cache" from transformers 5.24
# on, where the older name is deprecated.
(CACHE,) = {"cache", "past_key_values"} & {field.name for field in fields(CausalLMOutputWithPast)}

# What is known of a prompt in these is keys and values, a row for each prompt. Others may hold
# states too, which are not repeated with them, or are written over while a gradient needs them.
KEYS_AND_VALUES = (DynamicLayer, DynamicSlidingWindowLayer)


def prefill_prompts(
    model, ids: Tensor, mask: Tensor, cache: DynamicCache | None = None
) -> tuple[Any, DynamicCache]:
    """Return a model's output at the last tokens of prompts, (K, P), and a cache of all of them."""
    cache = cache or DynamicCache(config=model_config(model))
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=count_positions(mask),
        use_cache=True,
        logits_to_keep=1,
        **{CACHE: cache},
    )
    return output, cache


def can_share_prompts(model) -> bool:
    """Return whether the completions of a group can go on from one cache of their prompt.

    They cannot where a prompt leaves a state beside keys and values (state-space and linear
    attention), where checkpointing keeps no cache, where the model balances its experts over the
    tokens of a batch, and where PEFT puts virtual tokens before the prompt (prefix and prompt
    tuning), looks for tokens in it that switch an adapter on (aLoRA) or has a model beside it, with
    a cache of its own (Shadow).
    """
    model = unwrap_model(model)
    switched_on = _adapter_setting(model, "alora_invocation_tokens")
    checkpointed = any(getattr(m, "gradient_checkpointing", False) for m in model.modules())
    if checkpointed or switched_on or has_own_cache(model) or sees_padding(model):
        return False
    if getattr(model_config(model), "output_router_logits", False):
        return False
    layers = DynamicCache(config=model_config(model)).layers
    return all(type(layer) in KEYS_AND_VALUES for layer in layers)


def has_own_cache(model) -> bool:
    """Return whether PEFT has a model beside this one, with a cache of its own (Shadow)."""
    return _adapter_setting(model, "peft_type") == "SHADOW"


def sees_padding(model) -> bool:
    """Return whether an adapter's virtual tokens make log pi depend on padding before a prompt.

    They are before the padding, and PEFT ignores positions that are given to it.
    """
    return has_virtual_tokens(model) or _adapter_setting(model, "peft_type") == "ADAPTION_PROMPT"


def has_virtual_tokens(model) -> bool:
    """Return whether PEFT puts virtual tokens before a prompt (prompt, prefix and p-tuning)."""
    return bool(_adapter_setting(model, "is_prompt_learning"))


def _adapter_setting(model, name: str) -> Any:
    """Return a setting of the active PEFT adapter; None where there is none."""
    adapter = getattr(unwrap_model(model), "active_peft_config", None)
    return getattr(adapter, name, None)


def has_absolute_positions(model) -> bool:
    """Return whether a model has to be told positions, or it would count padding (GPT-2).

    Rotary positions are differences, which padding on the left does not change.
    """
    model = unwrap_model(model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return not is_rotary(model) and "position_ids" in signature(base.forward).parameters


def is_rotary(model) -> bool:
    """Return whether a model turns queries and keys by their positions (RoPE)."""
    return hasattr(model_config(model), "rope_parameters")


def count_positions(mask: Tensor) -> Tensor:
    """Return the positions of the tokens in a mask, from 0; padding on the left has 0."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def model_config(model):
    """Return the text model's configuration, also of a model that DDP or DeepSpeed has wrapped."""
    return unwrap_model(model).config.get_text_config()


def unwrap_model(model):
    """Return the model that DDP or DeepSpeed has wrapped."""
    while hasattr(model, "module"):
        model = model.module
    return model
