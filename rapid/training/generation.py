"""Sampling with transformers: each prompt is computed once, and who has ended is left out.

`generate` prepares what it is asked for, and `Decoder` takes the place of its loop.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import DynamicCache, StoppingCriteria, StoppingCriteriaList
from transformers.cache_utils import DynamicLayer
from transformers.generation import TemperatureLogitsWarper
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module

from rapid.training.caches import (
    CACHE,
    can_share_prompts,
    has_own_cache,
    has_virtual_tokens,
    is_rotary,
    model_config,
    prefill_prompts,
)

SPARE_TOKENS = 64  # tokens that a cache has room for, beyond those it was made for
# Settings with which one token follows another, and each row depends on itself alone. `generate`
# does others: it keeps other caches, and something of each row of the batch it began with.
DECODER_SETTINGS = {"num_beams": 1, "use_cache": True, "cache_implementation": "dynamic"}
DECODER_SETTINGS |= {
    "guidance_scale": 1,
    "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0,
}
DECODER_SETTINGS |= {"watermarking_config": None, "penalty_alpha": 0, "dola_layers": None}
# Of these, those with which a token is drawn from one forward pass for each row.
SINGLE_PASS_SETTINGS = [*DECODER_SETTINGS.keys() - {"use_cache", "cache_implementation"}]
COMPACT_BELOW = (
    0.75  # the share of a batch's rows that are still sampled, from which on it is made smaller
)


class Decoder:
    """The loop of `generate`, as its `custom_generate`: for models with `can_share_prompts`.

    It draws the random numbers that `generate` would draw, so that a seed gives the same
    completions. A prompt that is there several times is computed once. Completions that have ended
    leave the batch of the model; what `generate` has prepared, logits processors and stopping
    criteria, may hold something of each row, and always gets all of them.

    Args:
        share_prefill: compute each different prompt once.
        record: keep log pi of what is drawn.
        on_end: called with a row and its tokens, the end included, while others are still sampled.

    Attributes:
        logp: log pi of the completions of the last call, (N, T), at the temperature, where it is
            recorded; beyond the end of a completion it has no meaning. It is log mu where nothing
            else shapes what is drawn.
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
        logits_processor: Any,  # a list of them that can be called
        stopping_criteria: Callable,
        generation_config,
        **model_kwargs,
    ) -> Tensor:
        """Return prompts, (N, P), and their completions, filled up with padding: (N, P + T)."""
        count, width = input_ids.shape
        limit = generation_config.max_length - width
        mask = model_kwargs.get("attention_mask")
        if mask is None:  # `generate` drops one that is all ones
            mask = torch.ones_like(input_ids)
        logits, cache = self._prefill(model, input_ids, mask)
        sequences = torch.cat(
            [input_ids, input_ids.new_full((count, limit), generation_config.pad_token_id)], dim=1
        )
        precision = torch.float64 if logits.device.type == "cpu" else logits.dtype
        noise = torch.empty_like(logits, dtype=precision)  # (N, V), each row has its own numbers
        logp = logits.new_zeros(count, limit) if self.record else None
        position = mask.sum(1, keepdim=True)  # of the token that is drawn next
        # A mask is looked through in each step. Models older than RoPE warn where there is none.
        needs_mask = bool((mask == 0).any()) or not is_rotary(model)
        rows = torch.arange(count, device=input_ids.device)  # that are in the batch
        mask = torch.cat([mask, mask.new_ones(count, limit)], dim=1)
        drawn_logp = logits.new_zeros(())  # the sum of all: NaN once one is
        is_running = torch.ones_like(rows, dtype=torch.bool)  # of these, not ended
        temperature = generation_config.temperature or 1
        tempered = [TemperatureLogitsWarper] * (temperature != 1)  # what keeps the policy's logits
        shaped = [type(processor) for processor in logits_processor] != tempered
        for column in range(width, width + limit):
            if shaped and len(rows) < count:  # a temperature looks at no other row
                all_logits = logits.new_zeros(count, logits.size(1)).index_copy(0, rows, logits)
                scores = logits_processor(sequences[:, :column], all_logits)[rows]
            else:
                scores = logits_processor(sequences[:, :column], logits)
            drawn, drawn_token_logp = self._draw(scores, noise, rows, generation_config.do_sample)
            drawn_logp += drawn_token_logp.sum()
            drawn = drawn.masked_fill(~is_running, generation_config.pad_token_id)
            sequences[rows, column] = drawn
            if logp is not None:
                if shaped:
                    drawn_token_logp = _score_tokens(logits, drawn, temperature)
                logp[rows, column - width] = drawn_token_logp
            ends = is_running & stopping_criteria(sequences[:, : column + 1], None)[rows]
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
                is_running = is_running[is_running]
            logits = model(
                input_ids=drawn[:, None],
                attention_mask=mask[:, : column + 1] if needs_mask else None,
                position_ids=position,
                use_cache=True,
                **{CACHE: cache},
            ).logits[:, -1]
            logits, position = logits.float(), position + 1
        if drawn_logp.isnan():
            raise FloatingPointError(
                "the model's probabilities are NaN: its weights are too large, or no numbers, or "
                f"the temperature ({generation_config.temperature}) is too small"
            )
        self.logp = None if logp is None else logp[:, : column + 1 - width]
        return sequences[:, : column + 1]

    def _prefill(self, model, ids: Tensor, mask: Tensor):
        """Return the logits of each row's first token, (N, V), and a cache of all prompts."""
        prompt_index = torch.arange(len(ids), device=ids.device)
        if self.share_prefill:
            different, prompt_index = torch.unique(
                torch.cat([ids, mask], dim=1), dim=0, return_inverse=True
            )
            ids, mask = different.chunk(2, dim=1)
        cache = DynamicCache(config=model_config(model))
        cache.layers = [
            PreallocatedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
        ]
        output, cache = prefill_prompts(model, ids, mask, cache)
        cache.batch_select_indices(prompt_index)
        return output.logits[:, -1].float()[prompt_index], cache

    def _draw(self, scores: Tensor, noise: Tensor, rows: Tensor, sample: bool):
        """Return a token of each row, and its log-probability, (n,) each.

        Drawn is the largest of the probabilities over exponential variates, as `torch.multinomial`
        does it.
        """
        logp = scores.log_softmax(-1)
        drawn = logp.exp() / _exponential(noise, rows) if sample else scores
        drawn = drawn.argmax(-1)
        return drawn, logp.gather(1, drawn[:, None])[:, 0]


def _score_tokens(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Return log pi of tokens at a temperature. (N, V), (N,) -> (N,)"""
    logp = (logits.float() / temperature).log_softmax(-1)
    return logp.gather(1, tokens[:, None])[:, 0]


def _exponential(noise: Tensor, rows: Tensor) -> Tensor:
    """Return some rows of exponential variates, of which all are drawn into `noise`.

    On a CPU they are the logarithms of uniform ones, one after the other, which takes long. Here
    all uniform variates are drawn, and only the logarithms that are needed are taken.
    """
    if noise.device.type != "cpu":
        return noise.exponential_()[rows]
    return noise.uniform_()[rows].neg_().log1p_().neg_().float()


class PreallocatedLayer(DynamicLayer):
    """Keys and values in buffers with room for more tokens. DynamicLayer copies all for each."""

    keys: Tensor
    values: Tensor
    _buffers: tuple[Tensor, Tensor]

    def lazy_initialization(self, key_states, value_states) -> None:
        super().lazy_initialization(key_states, value_states)
        self._buffers = key_states[:, :, :0], value_states[:, :, :0]
        self.keys, self.values = self._buffers

    def update(self, key_states, value_states, *args, **kwargs) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens, and return all. (N, heads, T, size) each"""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end = self.keys.size(2), self.keys.size(2) + key_states.size(2)
        selected = self.keys.data_ptr() != self._buffers[0].data_ptr()  # rows, in another order
        if selected or end > self._buffers[0].size(2):
            self._buffers = _grow_buffer(self.keys, end), _grow_buffer(self.values, end)
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = new
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values


def _grow_buffer(old: Tensor, tokens: int) -> Tensor:
    rows, heads, tokens_held, size = old.shape
    buffer = old.new_empty(rows, heads, tokens + max(SPARE_TOKENS, tokens // 4), size)
    buffer[:, :, :tokens_held] = old
    return buffer


class GeneratedLogp(StoppingCriteria):
    """Log pi of what `generate` draws by itself, at the temperature: a criterion that never stops.

    It is called with each token, after the forward pass that this was drawn from.
    """

    def __init__(self, temperature: float):
        self._temperature = temperature
        self._logits: Tensor
        self._logps: list[Tensor] = []  # (N,) for each token

    def keep_logits(self, module, args, output) -> None:
        """Keep the last logits of a forward pass: a hook of the model."""
        self._logits = output.logits[:, -1]

    def __call__(self, input_ids, scores, **kwargs) -> Tensor:
        self._logps.append(_score_tokens(self._logits, input_ids[:, -1], self._temperature))
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def generate(self, model, generate: Callable, *args, **kwargs) -> tuple[Any, list[Tensor]]:
        """Call `generate`, and return its output and log pi of each completion, (T,)."""
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        hook = base.register_forward_hook(self.keep_logits)
        try:
            output = generate(*args, stopping_criteria=StoppingCriteriaList([self]), **kwargs)
        finally:
            hook.remove()
        return output, list(torch.stack(self._logps, dim=1))


def can_decode(model, config) -> bool:
    """Return whether a Decoder can sample from a model as a GenerationConfig says.

    What that leaves open, the model's own says. Processes that each hold a part of the weights
    (ZeRO-3, FSDP) have to make as many forward passes as the others, which a Decoder does not.
    """
    if is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model):
        return False
    return _has_decoder_settings(model, config, DECODER_SETTINGS) and can_share_prompts(model)


def _has_decoder_settings(model, config, names: Iterable[str]) -> bool:
    """Return whether these settings are USUAL, in a configuration or else in the model's own."""
    model_own = model.generation_config
    return all(
        getattr(model_own if getattr(config, name) is None else config, name)
        in (None, DECODER_SETTINGS[name])
        for name in names
    )


@contextmanager
def _show_cache_to_peft(model) -> Iterator[None]:
    """Let PEFT see the cache meanwhile, where it puts virtual tokens before prompts.

    PEFT 0.21 looks for a cache by the name that it had before transformers 5.24. Where it sees none
    it leaves virtual tokens out from the second token on.
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
def decoding(model, decoder: Decoder, scored: list[Tensor] | None = None) -> Iterator[list[Tensor]]:
    """Let `model.generate`, meanwhile, decode by this where it can.

    Args:
        scored: gets log pi, (T,), of each completion in the order of sampling, whether the decoder
            samples or `generate` by itself.

    Yields:
        A list that gets log mu, (T,), of each completion in the order of sampling, if recorded.
    """
    recorded: list[Tensor] = []
    generate, record = model.generate, decoder.record
    decoder.record = record or scored is not None

    def decoded(*args, generation_config, **kwargs) -> Tensor:
        kwargs["generation_config"] = generation_config
        if can_decode(model, generation_config):
            output = generate(*args, custom_generate=decoder, **kwargs)
            if record and decoder.logp is not None:
                recorded.extend(decoder.logp)
            if scored is not None and decoder.logp is not None:
                scored.extend(decoder.logp)
            return output
        if has_own_cache(model) and CACHE != "past_key_values":  # PEFT 0.21 would lose it
            kwargs["generation_config"] = generation_config = copy(generation_config)
            generation_config.use_cache = False
        with _show_cache_to_peft(model):
            if scored is None or not _has_decoder_settings(
                model, generation_config, SINGLE_PASS_SETTINGS
            ):
                return generate(*args, **kwargs)
            logps = GeneratedLogp(generation_config.temperature or 1)
            output, completions = logps.generate(model, generate, *args, **kwargs)
        scored.extend(completions)
        return output

    with patch.object(model, "generate", decoded):
        yield recorded
