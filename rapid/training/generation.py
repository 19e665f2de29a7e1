"""Sampling with transformers: a faster loop for `generate`, and log-probabilities of its samples.

`generate` of transformers calls a `Decoder` in place of its own loop. A Decoder computes each
distinct prompt once, and removes completions that have ended from the batch.

Shapes: N completions, n of them still in the model's batch, P prompt tokens, T completion tokens,
V words of the vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import DynamicCache, StoppingCriteriaList
from transformers.cache_utils import DynamicLayer
from transformers.generation import TemperatureLogitsWarper

from rapid.training.caches import (
    CACHE,
    can_share_prompts,
    get_text_config,
    has_second_cache,
    has_virtual_tokens,
    is_rotary,
    prefill_prompts,
)

SPARE_TOKENS = 64  # a new buffer of a cache has room for at least 64 further tokens
# Settings of `generate`, with the values that a Decoder supports. With these values, one token per
# row is drawn from each forward pass, a token depends on its own row only, and the cache has keys
# and values only.
DECODER_SETTINGS = {
    "num_beams": 1,
    "use_cache": True,
    "cache_implementation": "dynamic",
    "guidance_scale": 1,
    "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0,
    "watermarking_config": None,
    "penalty_alpha": 0,
    "dola_layers": None,
}
# The settings that need their values in DECODER_SETTINGS so that `generate` makes one forward pass
# per token.
SINGLE_PASS_SETTINGS = [*DECODER_SETTINGS.keys() - {"use_cache", "cache_implementation"}]
# Rows that have ended are removed from the model's batch when at most this share of its rows is
# still running.
COMPACT_BELOW = 0.75


class Decoder:
    """A sampling loop for the argument `custom_generate` of `generate`.

    `can_decode` says which models and settings it supports. A Decoder draws the same random numbers
    as `generate`, so that a seed gives the same completions. Completions that have ended are
    removed from the model's batch. Logits processors and stopping criteria still get all N rows,
    because they may hold data for each row.

    Args:
        share_prefill: compute a prompt once if several rows have it.
        record: keep log pi of the sampled tokens.
        on_end: called as soon as a completion has ended, while others are still being sampled. Its
            arguments are the row's index and the completion's tokens, including the end token.

    Attributes:
        logp: log pi of the completions of the last call, (N, T), at the sampling temperature, if
            recorded. Values beyond the end of a completion are arbitrary. log pi is also log mu,
            the log-probabilities under the distribution that was sampled from, unless settings such
            as top_p change this distribution.
    """

    def __init__(
        self,
        share_prefill: bool = True,
        record: bool = False,
        on_end: Callable[[int, list[int]], None] | None = None,
    ):
        self.share_prefill, self.record, self.on_end = share_prefill, record, on_end
        self.logp: Tensor | None = None

    def __call__(
        self,
        model,
        input_ids: Tensor,
        logits_processor: Any,  # a callable list of logits processors
        stopping_criteria: Callable,
        generation_config,
        **model_kwargs,
    ) -> Tensor:
        """Sample a completion for each prompt, (N, P); return both as one tensor, (N, P + T)."""
        count, width = input_ids.shape
        limit = generation_config.max_length - width
        mask = model_kwargs.get("attention_mask")
        if mask is None:  # `generate` drops a mask that is all ones
            mask = torch.ones_like(input_ids)
        logits, cache = self._prefill(model, input_ids, mask)
        sequences = torch.cat(
            [input_ids, input_ids.new_full((count, limit), generation_config.pad_token_id)], dim=1
        )
        # On a CPU, torch draws exponential variates in float64 (see `_draw_exponential`).
        precision = torch.float64 if logits.device.type == "cpu" else logits.dtype
        noise = torch.empty_like(logits, dtype=precision)  # (N, V), overwritten for each token
        logp = logits.new_zeros(count, limit) if self.record else None
        position = mask.sum(1, keepdim=True)  # (n, 1), position of the token that is drawn next
        # Passing a mask takes time in each step. Models without RoPE warn if there is no mask.
        needs_mask = bool((mask == 0).any()) or not is_rotary(model)
        rows = torch.arange(count, device=input_ids.device)  # (n,), rows in the model's batch
        mask = torch.cat([mask, mask.new_ones(count, limit)], dim=1)
        logp_sum = logits.new_zeros(())  # of all drawn tokens: NaN if log pi of any of them is NaN
        is_running = torch.ones_like(rows, dtype=torch.bool)  # (n,), completions not ended
        temperature = generation_config.temperature or 1
        temperature_only = [TemperatureLogitsWarper] * (temperature != 1)
        # Whether anything besides the temperature, such as top_p, changes the distribution.
        has_processors = [type(processor) for processor in logits_processor] != temperature_only
        for column in range(width, width + limit):
            if has_processors and len(rows) < count:  # processors may hold data for all N rows
                all_logits = logits.new_zeros(count, logits.size(1)).index_copy(0, rows, logits)
                scores = logits_processor(sequences[:, :column], all_logits)[rows]
            else:
                scores = logits_processor(sequences[:, :column], logits)
            drawn, drawn_logp = self._draw_tokens(scores, noise, rows, generation_config.do_sample)
            logp_sum += drawn_logp.sum()
            drawn = drawn.masked_fill(~is_running, generation_config.pad_token_id)
            sequences[rows, column] = drawn
            if logp is not None:
                if has_processors:
                    drawn_logp = _score_tokens(logits, drawn, temperature)
                logp[rows, column - width] = drawn_logp
            ends = is_running & stopping_criteria(sequences[:, : column + 1], None)[rows]
            # In the last column all completions end, and there is no other to wait for.
            if self.on_end and column < width + limit - 1:
                ended = sequences[rows[ends], width : column + 1].tolist()
                for row, completion in zip(rows[ends].tolist(), ended, strict=True):
                    self.on_end(row, completion)
            is_running = is_running & ~ends
            running_count = int(is_running.sum())
            if not running_count:
                break
            if running_count <= COMPACT_BELOW * len(rows):
                cache.batch_select_indices(is_running.nonzero().flatten())
                rows, mask = rows[is_running], mask[is_running]
                drawn, position = drawn[is_running], position[is_running]
                is_running = is_running[is_running]  # True for each remaining row
            logits = model(
                input_ids=drawn[:, None],
                attention_mask=mask[:, : column + 1] if needs_mask else None,
                position_ids=position,
                use_cache=True,
                **{CACHE: cache},
            ).logits[:, -1]
            logits, position = logits.float(), position + 1
        if logp_sum.isnan():
            raise FloatingPointError(
                "the model's probabilities are NaN: its weights are NaN or too large, or "
                f"the temperature ({generation_config.temperature}) is too small"
            )
        self.logp = None if logp is None else logp[:, : column + 1 - width]
        return sequences[:, : column + 1]

    def _prefill(self, model, ids: Tensor, mask: Tensor):
        """Run the prompts; return the logits of each row's next token, (N, V), and the cache."""
        prompt_index = torch.arange(len(ids), device=ids.device)
        if self.share_prefill:
            distinct, prompt_index = torch.unique(
                torch.cat([ids, mask], dim=1), dim=0, return_inverse=True
            )
            ids, mask = distinct.chunk(2, dim=1)
        cache = DynamicCache(config=get_text_config(model))
        cache.layers = [
            PreallocatedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
        ]
        output, cache = prefill_prompts(model, ids, mask, cache)
        cache.batch_select_indices(prompt_index)
        return output.logits[:, -1].float()[prompt_index], cache

    def _draw_tokens(self, scores: Tensor, noise: Tensor, rows: Tensor, sample: bool):
        """Draw a token for each row from its scores, (n, V).

        As in `torch.multinomial`, the drawn token has the largest ratio of its probability to an
        exponential variate. Without `sample` it is the most probable token.

        Returns:
            The tokens and their log-probabilities, (n,) each.
        """
        logp = scores.log_softmax(-1)
        drawn = logp.exp() / _draw_exponential(noise, rows) if sample else scores
        drawn = drawn.argmax(-1)
        return drawn, logp.gather(1, drawn[:, None])[:, 0]


def _score_tokens(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Return log pi of tokens, (N,), from logits, (N, V), at a temperature."""
    logp = (logits.float() / temperature).log_softmax(-1)
    return logp.gather(1, tokens[:, None])[:, 0]


def _draw_exponential(noise: Tensor, rows: Tensor) -> Tensor:
    """Draw exponential variates in the shape of `noise`, (N, V), and return those of `rows`.

    Variates are drawn for all rows, so that random numbers do not depend on which completions have
    ended. On a CPU, torch computes exponential variates as logarithms of uniform ones, which is
    slow. Here the logarithms are computed for `rows` only.
    """
    if noise.device.type != "cpu":
        return noise.exponential_()[rows]
    return noise.uniform_()[rows].neg_().log1p_().neg_().float()


class PreallocatedLayer(DynamicLayer):
    """A layer of a cache with room for further tokens.

    transformers' DynamicLayer copies all keys and values for each new token.
    """

    keys: Tensor
    values: Tensor
    _buffers: tuple[Tensor, Tensor]

    def lazy_initialization(self, key_states, value_states) -> None:
        super().lazy_initialization(key_states, value_states)
        self._buffers = key_states[:, :, :0], value_states[:, :, :0]
        self.keys, self.values = self._buffers

    def update(self, key_states, value_states, *args, **kwargs) -> tuple[Tensor, Tensor]:
        """Append keys and values of new tokens; return all, (rows, heads, tokens, size) each."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end = self.keys.size(2), self.keys.size(2) + key_states.size(2)
        # Selecting rows of the cache replaces `keys` and `values` by copies outside the buffers.
        is_copy = self.keys.data_ptr() != self._buffers[0].data_ptr()
        if is_copy or end > self._buffers[0].size(2):
            self._buffers = _grow_buffer(self.keys, end), _grow_buffer(self.values, end)
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = new
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values


def _grow_buffer(old: Tensor, tokens: int) -> Tensor:
    """Copy keys or values into a buffer with room for `tokens` tokens and more.

    It has room for a quarter more, but at least for SPARE_TOKENS more.
    """
    rows, heads, old_tokens, size = old.shape
    buffer = old.new_empty(rows, heads, tokens + max(SPARE_TOKENS, tokens // 4), size)
    buffer[:, :, :old_tokens] = old
    return buffer


def generate_with_logps(
    model, generate: Callable, temperature: float, *args, **kwargs
) -> tuple[Any, list[Tensor]]:
    """Call `generate`; return its output, and log pi, (T,), at the temperature, of each completion.

    A stopping criterion, which `generate` calls after each drawn token, records log pi, and never
    stops sampling.
    """
    last_logits: dict[str, Tensor] = {}
    logps: list[Tensor] = []  # (N,) for each position

    def record_logps(input_ids: Tensor, scores, **_) -> Tensor:
        logps.append(_score_tokens(last_logits["logits"], input_ids[:, -1], temperature))
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    # `generate` of a PEFT model calls the base model.
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    hook = base.register_forward_hook(
        lambda module, args, output: last_logits.update(logits=output.logits[:, -1])
    )
    try:
        output = generate(*args, stopping_criteria=StoppingCriteriaList([record_logps]), **kwargs)
    finally:
        hook.remove()
    return output, list(torch.stack(logps, dim=1))


def can_decode(model, config) -> bool:
    """Return whether a Decoder can sample from a model with these generation settings.

    Args:
        config: a GenerationConfig. A field that is None has the value of the model's own
            generation_config.
    """
    return _has_decoder_settings(model, config, DECODER_SETTINGS) and can_share_prompts(model)


def _has_decoder_settings(model, config, names: Iterable[str]) -> bool:
    """Return whether the settings with these names have the values in `DECODER_SETTINGS`.

    A setting that is None in `config` is read from the model's own generation_config.
    """
    model_settings = model.generation_config
    return all(
        getattr(model_settings if getattr(config, name) is None else config, name)
        in (None, DECODER_SETTINGS[name])
        for name in names
    )


@contextmanager
def _pass_cache_to_peft(model) -> Iterator[None]:
    """Within this context, pass the cache under its older name to PEFT models with virtual tokens.

    PEFT 0.21 expects the cache under the name "past_key_values", which transformers 5.24 changed.
    Without an argument of this name, PEFT leaves out the virtual tokens from the second sampled
    token on.
    """
    if not has_virtual_tokens(model):
        yield
        return
    prepare = model.base_model_prepare_inputs_for_generation

    def prepare_with_older_name(*args, **kwargs) -> dict[str, Any]:
        inputs = prepare(*args, **kwargs)
        return inputs | ({"past_key_values": inputs.pop(CACHE)} if CACHE in inputs else {})

    with patch.object(model, "base_model_prepare_inputs_for_generation", prepare_with_older_name):
        yield


@contextmanager
def use_decoder(
    model,
    decoder: Decoder,
    policy_logps: list[Tensor] | None = None,
    autocast: Callable[[], AbstractContextManager] = nullcontext,
) -> Iterator[list[Tensor]]:
    """Within this context, `model.generate` samples with `decoder` if `can_decode` is True.

    Args:
        policy_logps: a list to which log pi, (T,), of each completion is appended, in the order of
            sampling, whether the decoder or the loop of `generate` samples. It stays empty if
            `generate` makes several forward passes per token, as with beam search.
        autocast: returns the context of mixed precision that the model's forward method enters. The
            decoder samples within it, so that the weights are converted once, and not in each
            forward pass.

    Yields:
        A list that receives `Decoder.logp`, (T,), of each completion, for use as log mu, in the
        order of sampling, if the decoder samples and `decoder.record` is set.
    """
    behavior_logps: list[Tensor] = []
    generate, record = model.generate, decoder.record
    decoder.record = record or policy_logps is not None

    def generate_with_decoder(*args, generation_config, **kwargs) -> Tensor:
        kwargs["generation_config"] = generation_config
        if can_decode(model, generation_config):
            with autocast():
                output = generate(*args, custom_generate=decoder, **kwargs)
            if record and decoder.logp is not None:
                behavior_logps.extend(decoder.logp)
            if policy_logps is not None and decoder.logp is not None:
                policy_logps.extend(decoder.logp)
            return output
        # PEFT's Shadow adapters add a model with a second cache, to which PEFT 0.21 does not pass
        # the cache under its new name.
        if has_second_cache(model) and CACHE != "past_key_values":
            kwargs["generation_config"] = generation_config = copy(generation_config)
            generation_config.use_cache = False
        with _pass_cache_to_peft(model):
            if policy_logps is None or not _has_decoder_settings(
                model, generation_config, SINGLE_PASS_SETTINGS
            ):
                return generate(*args, **kwargs)
            output, logps = generate_with_logps(
                model, generate, generation_config.temperature or 1, *args, **kwargs
            )
        policy_logps.extend(logps)
        return output

    with patch.object(model, "generate", generate_with_decoder):
        yield behavior_logps
