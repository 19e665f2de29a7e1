"""Computes key-value caches of prompts, and decides for which models completions can share one."""

from dataclasses import fields
from inspect import signature
from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

# The name of the cache among a model's arguments and outputs. It is "cache" since transformers
# 5.24, which deprecates "past_key_values".
(CACHE,) = {"cache", "past_key_values"} & {field.name for field in fields(CausalLMOutputWithPast)}

# Layers of a cache that hold only keys and values. Their rows, one per prompt, can be repeated for
# each completion. Other layers may also hold states that are not repeated, or that later tokens
# overwrite although a gradient needs them.
KEY_VALUE_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer)


def prefill_prompts(
    model, ids: Tensor, mask: Tensor, cache: DynamicCache | None = None
) -> tuple[Any, DynamicCache]:
    """Run K prompts of P tokens; return the output for the last tokens, and a cache of all tokens.

    Args:
        mask: (K, P), 0 at padding on the left.
        cache: an empty cache to use.
    """
    if cache is None:
        cache = DynamicCache(config=get_text_config(model))
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
    """Return whether the completions of a group can share one cache of their prompt.

    They cannot if

    - the cache holds a state besides keys and values (state-space models, linear attention);
    - gradient checkpointing is on, with which models return no cache;
    - a loss balances the model's experts over all tokens of a batch (`output_router_logits`), in
      which a prompt has to count once for each completion;
    - PEFT puts virtual tokens before the prompt (prefix and prompt tuning), searches the prompt for
      tokens that activate an adapter (aLoRA), or adds a model with its own cache (Shadow).
    """
    model = unwrap_model(model)
    if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        return False
    has_invocation_tokens = _get_adapter_setting(model, "alora_invocation_tokens")
    if has_invocation_tokens or has_second_cache(model) or depends_on_padding(model):
        return False
    if getattr(get_text_config(model), "output_router_logits", False):
        return False
    layers = DynamicCache(config=get_text_config(model)).layers
    return all(type(layer) in KEY_VALUE_LAYERS for layer in layers)


def has_second_cache(model) -> bool:
    """Return whether PEFT adds a second model, which has its own cache (Shadow)."""
    return _get_adapter_setting(model, "peft_type") == "SHADOW"


def depends_on_padding(model) -> bool:
    """Return whether log-probabilities depend on the padding before a prompt.

    They do if an adapter adds virtual tokens, because PEFT places these before the padding and
    ignores `position_ids`.
    """
    # LLaMA-Adapter (ADAPTION_PROMPT) is not one of PEFT's kinds of prompt learning.
    return (
        has_virtual_tokens(model) or _get_adapter_setting(model, "peft_type") == "ADAPTION_PROMPT"
    )


def has_virtual_tokens(model) -> bool:
    """Return whether PEFT puts virtual tokens before a prompt (prompt, prefix and p-tuning)."""
    return bool(_get_adapter_setting(model, "is_prompt_learning"))


def _get_adapter_setting(model, name: str) -> Any:
    """Return a setting of the active PEFT adapter; None without an adapter or such a setting."""
    adapter = getattr(unwrap_model(model), "active_peft_config", None)
    return getattr(adapter, name, None)


def has_absolute_positions(model) -> bool:
    """Return whether a model needs `position_ids`, as GPT-2 does.

    Without them it counts padding on the left as positions. Rotary embeddings depend on differences
    of positions, which padding on the left does not change.
    """
    model = unwrap_model(model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return not is_rotary(model) and "position_ids" in signature(base.forward).parameters


def is_rotary(model) -> bool:
    """Return whether a model has rotary position embeddings (RoPE)."""
    return hasattr(get_text_config(model), "rope_parameters")


def count_positions(mask: Tensor) -> Tensor:
    """Return the positions of tokens for a mask, (N, T); 0 for left padding and the first token."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def get_text_config(model):
    """Return the configuration of a text model, which DDP or DeepSpeed may wrap."""
    return unwrap_model(model).config.get_text_config()


def unwrap_model(model):
    """Return the model without the wrappers of DDP or DeepSpeed."""
    while hasattr(model, "module"):
        model = model.module
    return model
