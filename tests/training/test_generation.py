"""The decoder samples what transformers samples from the same seed, with less computation."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
    MistralConfig,
)

from rapid.training import generation
from rapid.training.generation import Decoder, can_decode, use_decoder
from tests.training import loops
from tests.training.loops import ROUNDING

PROMPTS = ["one prompt"] * 3 + ["another, longer prompt"] * 3 + ["a third"]
ENDS = list(range(1, 40))


@pytest.fixture(scope="module")
def model(toy_model):
    return AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float64).eval()


@pytest.fixture(scope="module")
def prompts(toy_model):
    tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
    return tokenizer(PROMPTS, return_tensors="pt", padding=True)


def build_config(**settings) -> GenerationConfig:
    defaults = {"max_new_tokens": 40, "do_sample": True, "top_k": 0, "temperature": 0.7}
    return GenerationConfig(**defaults | {"eos_token_id": ENDS, "pad_token_id": 0} | settings)


def sample(model, prompts, decoder=None, **settings) -> torch.Tensor:
    """Return completions, (N, T)."""
    torch.manual_seed(0)
    inputs = {name: prompts[name] for name in ("input_ids", "attention_mask")}
    output = model.generate(
        **inputs, generation_config=build_config(**settings), custom_generate=decoder
    )
    return output[:, prompts["input_ids"].size(1) :]


@pytest.mark.parametrize("share_prefill", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1},
        {"do_sample": False},
        {"min_new_tokens": 5},
        {"max_new_tokens": 1},
        {"eos_token_id": None},
    ],
    ids=str,
)
def test_decoder_samples_like_generate_with_same_seed(model, prompts, share_prefill, settings):
    completions = sample(model, prompts, Decoder(share_prefill), **settings)
    assert completions.tolist() == sample(model, prompts, **settings).tolist()


@pytest.mark.parametrize("order", [[0, 3, 6], [6, 3, 0]])
def test_distinct_prompts_keep_their_order(model, prompts, order):
    """Distinct prompts are as many rows before and after prefilling, which may reorder them."""
    selected_prompts = {name: values[order] for name, values in prompts.items()}
    assert (
        sample(model, selected_prompts, Decoder()).tolist()
        == sample(model, selected_prompts).tolist()
    )


def test_sliding_window_model_is_sampled_like_generate(model, prompts):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 1, "intermediate_size": 32}
    config = MistralConfig(sliding_window=4, vocab_size=model.config.vocab_size, **sizes)
    model = AutoModelForCausalLM.from_config(config).eval()
    completions = sample(model, prompts, Decoder())
    assert completions.tolist() == sample(model, prompts).tolist()


def test_prompts_are_computed_once_and_ended_rows_are_dropped(model, prompts):
    row_counts = []
    hook = model.model.register_forward_pre_hook(
        lambda _, args, kwargs: row_counts.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    completions = sample(model, prompts, Decoder())
    hook.remove()
    assert row_counts[:2] == [3, 7]
    assert len(row_counts) == completions.size(1)
    lengths = (completions != 0).sum(1)
    for step, row_count in enumerate(row_counts[1:], 1):
        unfinished = int((lengths > step).sum())
        assert unfinished <= row_count < max(2, unfinished / 0.75 + 1)
    # Rows are dropped several at a time, since dropping copies the cache.
    assert len({*row_counts[1:]}) < len({*lengths.tolist()})
    assert row_counts[-1] < 4


@pytest.mark.parametrize(("order", "padded"), [([0, 1, 2], False), ([0, 3, 6], True)])
def test_mask_is_passed_only_with_padding(model, prompts, order, padded):
    selected_prompts = {name: values[order] for name, values in prompts.items()}
    if not padded:
        width = int(selected_prompts["attention_mask"].sum(1).max())
        selected_prompts = {name: values[:, -width:] for name, values in selected_prompts.items()}
    masks = []
    hook = model.model.register_forward_pre_hook(
        lambda _, args, kwargs: masks.append(kwargs["attention_mask"]), with_kwargs=True
    )
    completions = sample(model, selected_prompts, Decoder())
    hook.remove()
    assert {mask is not None for mask in masks[1:]} == {padded}
    assert completions.tolist() == sample(model, selected_prompts).tolist()


def test_model_without_rotary_positions_gets_a_mask(model):
    """Without a mask GPT-2 would warn of the padding of completions that ended."""
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": model.config.vocab_size}
    gpt2 = AutoModelForCausalLM.from_config(GPT2Config(pad_token_id=0, **sizes)).eval()
    ids = torch.arange(50, 54).expand(3, 4)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    masks = []
    hook = gpt2.transformer.register_forward_pre_hook(
        lambda _, args, kwargs: masks.append(kwargs["attention_mask"]), with_kwargs=True
    )
    completions = sample(gpt2, inputs, Decoder())
    hook.remove()
    assert len(masks) > 2 and None not in masks
    assert completions.tolist() == sample(gpt2, inputs).tolist()


def test_prompts_with_different_masks_are_not_shared(model):
    ids = torch.tensor([[5, 6, 7], [5, 6, 7], [5, 6, 7]])
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 1, 1]])
    prompts = {"input_ids": ids, "attention_mask": mask}
    decoder = Decoder(record=True)
    sample(model, prompts, decoder, do_sample=False, max_new_tokens=1)
    first_logp, masked_logp, repeated_logp = decoder.logp[:, 0].tolist()
    assert first_logp == repeated_logp != masked_logp


def test_recorded_logps_match_tempered_distribution(model, prompts):
    decoder = Decoder(record=True)
    tokens = sample(model, prompts, decoder)
    ids = torch.cat([prompts["input_ids"], tokens], dim=1)
    mask = torch.cat([prompts["attention_mask"], torch.ones_like(tokens)], dim=1)
    position = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, position_ids=position).logits
    width = prompts["input_ids"].size(1)
    logp = torch.log_softmax(logits[:, width - 1 : -1].float() / 0.7, dim=-1)
    expected = logp.gather(2, tokens[:, :, None])[:, :, 0]
    is_token = tokens != 0
    torch.testing.assert_close(decoder.logp[is_token], expected[is_token], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("max_tokens", [40, 5])
def test_end_of_completion_is_announced_once_during_sampling(model, prompts, max_tokens):
    announced = {}

    def on_end(row, ids):
        assert row not in announced
        announced[row] = ids

    tokens = sample(model, prompts, Decoder(on_end=on_end), max_new_tokens=max_tokens)
    assert tokens.size(1) <= max_tokens
    for row, ids in announced.items():
        assert tokens[row][: len(ids)].tolist() == ids
        assert ids[-1] in ENDS
        assert not {*ids[:-1]} & {*ENDS}
    end_tokens = [{*ids[: max_tokens - 1]} & {*ENDS} for ids in tokens.tolist()]
    assert announced.keys() == {row for row, row_ends in enumerate(end_tokens) if row_ends}
    assert len(announced) > 0 and (max_tokens == 40 or len(announced) < len(PROMPTS))


def test_nan_probabilities_end_sampling(model, prompts, monkeypatch):
    nan_weight = torch.full_like(model.model.norm.weight, torch.nan)
    monkeypatch.setattr(model.model.norm.weight, "data", nan_weight)
    with pytest.raises(FloatingPointError, match=r"NaN.* or the temperature \(0.7\) is too small"):
        sample(model, prompts, Decoder())


def test_decoder_needs_shareable_cache(model, monkeypatch):
    assert can_decode(model, build_config())
    monkeypatch.setattr(generation, "can_share_prompts", lambda _: False)
    assert not can_decode(model, build_config())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_beams", 2),
        ("use_cache", False),
        ("cache_implementation", "static"),
        ("guidance_scale", 1.5),
        ("encoder_repetition_penalty", 1.2),
        ("encoder_no_repeat_ngram_size", 2),
        ("watermarking_config", {"bias": 2.0}),
        ("penalty_alpha", 0.6),
        ("dola_layers", "high"),
    ],
)
def test_unsupported_generation_settings_are_not_decoded(model, monkeypatch, name, value):
    config = build_config()
    setattr(config, name, value)
    assert not can_decode(model, config)
    monkeypatch.setattr(model.generation_config, name, value)
    assert not can_decode(model, build_config())
    default = 1 if name == "num_beams" else None
    assert can_decode(model, build_config(**{name: default})) == (name == "num_beams")


class WeightConversions(TorchDispatchMode):
    """Counts conversions of a layer's weights to another type of number."""

    def __init__(self, layer):
        super().__init__()
        self.count, self._address = 0, layer.weight.data_ptr()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default:
            self.count += args[0].data_ptr() == self._address
        return function(*args, **kwargs or {})


def test_weights_are_converted_once_for_all_tokens(toy_model, prompts):
    """The model's forward method enters autocast itself, as accelerate's does."""
    model = AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float32).eval()
    autocast = partial(torch.autocast, "cpu", torch.bfloat16)
    model.forward = autocast()(model.forward)
    layer = model.model.layers[0].mlp.up_proj
    outputs, counts = [], []
    for context in (nullcontext, autocast):
        torch.manual_seed(0)
        with WeightConversions(layer) as conversions, use_decoder(model, Decoder(), None, context):
            outputs.append(model.generate(**prompts, generation_config=build_config()))
        counts.append(conversions.count)
    assert torch.equal(*outputs)
    passes = outputs[0].size(1) - prompts["input_ids"].size(1)  # one for each token
    assert counts == [passes, 1] and passes > 1


def test_trainer_samples_within_its_mixed_precision(toy_model, tmp_path, monkeypatch):
    are_enabled, decode = [], Decoder.__call__

    def record_autocast(*args, **kwargs):
        are_enabled.append(torch.is_autocast_enabled("cpu"))
        return decode(*args, **kwargs)

    monkeypatch.setattr(Decoder, "__call__", record_autocast)
    for bf16 in (True, False):
        loops.train_rapid(toy_model, tmp_path, "rapid", dtype=torch.float32, bf16=bf16, max_steps=1)
    assert are_enabled == [True, False]


@pytest.mark.parametrize("beams", [1, 2])
def test_generate_uses_decoder_only_within_context_and_returns_logps(model, prompts, beams):
    """Beam search is left to `generate` itself, which records no log mu."""
    torch.manual_seed(0)
    expected = model.generate(**prompts, generation_config=build_config(num_beams=beams))
    torch.manual_seed(0)
    with use_decoder(model, Decoder(record=True)) as recorded:
        output = model.generate(**prompts, generation_config=build_config(num_beams=beams))
    assert output.tolist() == expected.tolist()
    completions = output[:, prompts["input_ids"].size(1) :]
    assert recorded == [] if beams == 2 else torch.stack(recorded).shape == completions.shape
    assert "generate" not in vars(model)
