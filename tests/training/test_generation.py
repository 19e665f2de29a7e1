"""The decoder samples what transformers samples, with the same seed, and does less."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
    MistralConfig,
)

from rapid.training import generation
from rapid.training.generation import Decoder, can_decode, decoding
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


def config(**more) -> GenerationConfig:
    usual = {"max_new_tokens": 40, "do_sample": True, "top_k": 0, "temperature": 0.7}
    return GenerationConfig(**usual | {"eos_token_id": ENDS, "pad_token_id": 0} | more)


def sample(model, prompts, decoder=None, **more) -> torch.Tensor:
    """Return completions, (N, T)."""
    torch.manual_seed(0)
    inputs = {name: prompts[name] for name in ("input_ids", "attention_mask")}
    output = model.generate(**inputs, generation_config=config(**more), custom_generate=decoder)
    return output[:, prompts["input_ids"].size(1) :]


@pytest.mark.parametrize("share_prefill", [False, True])
@pytest.mark.parametrize(
    "more",
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
def test_a_seed_gives_the_completions_of_generate(model, prompts, share_prefill, more):
    found = sample(model, prompts, Decoder(share_prefill), **more)
    assert found.tolist() == sample(model, prompts, **more).tolist()


@pytest.mark.parametrize("order", [[0, 3, 6], [6, 3, 0]])
def test_prompts_that_are_there_once_keep_their_order(model, prompts, order):
    """Each is computed once: these are as many rows as before, in another order."""
    chosen = {name: values[order] for name, values in prompts.items()}
    assert sample(model, chosen, Decoder()).tolist() == sample(model, chosen).tolist()


def test_sliding_windows_are_sampled_as_by_generate(model, prompts):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 1, "intermediate_size": 32}
    windowed = MistralConfig(sliding_window=4, vocab_size=model.config.vocab_size, **sizes)
    model = AutoModelForCausalLM.from_config(windowed).eval()
    found = sample(model, prompts, Decoder())
    assert found.tolist() == sample(model, prompts).tolist()


def test_each_prompt_is_computed_once_and_who_ended_is_left_out(model, prompts):
    rows = []
    hook = model.model.register_forward_pre_hook(
        lambda _, args, kwargs: rows.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    completions = sample(model, prompts, Decoder())
    hook.remove()
    assert rows[:2] == [3, 7]
    assert len(rows) == completions.size(1)
    lengths = (completions != 0).sum(1)
    for step, count in enumerate(rows[1:], 1):
        going = int((lengths > step).sum())
        assert going <= count < max(2, going / 0.75 + 1)
    assert len({*rows[1:]}) < len({*lengths.tolist()})  # several at a time, for all are copied
    assert rows[-1] < 4


@pytest.mark.parametrize(("order", "padded"), [([0, 1, 2], False), ([0, 3, 6], True)])
def test_a_step_has_a_mask_only_where_something_is_padding(model, prompts, order, padded):
    chosen = {name: values[order] for name, values in prompts.items()}
    if not padded:
        width = int(chosen["attention_mask"].sum(1).max())
        chosen = {name: values[:, -width:] for name, values in chosen.items()}
    masks = []
    hook = model.model.register_forward_pre_hook(
        lambda _, args, kwargs: masks.append(kwargs["attention_mask"]), with_kwargs=True
    )
    completions = sample(model, chosen, Decoder())
    hook.remove()
    assert {mask is not None for mask in masks[1:]} == {padded}
    assert completions.tolist() == sample(model, chosen).tolist()


def test_a_model_that_is_not_rotary_is_not_warned_of_padding(model):
    """GPT-2 looks for padding where it gets no mask, and finds that of completions that ended."""
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": model.config.vocab_size}
    older = AutoModelForCausalLM.from_config(GPT2Config(pad_token_id=0, **sizes)).eval()
    ids = torch.arange(50, 54).expand(3, 4)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    masks = []
    hook = older.transformer.register_forward_pre_hook(
        lambda _, args, kwargs: masks.append(kwargs["attention_mask"]), with_kwargs=True
    )
    completions = sample(older, inputs, Decoder())
    hook.remove()
    assert len(masks) > 2 and None not in masks
    assert completions.tolist() == sample(older, inputs).tolist()


def test_prompts_that_differ_by_their_mask_only_are_different(model):
    ids = torch.tensor([[5, 6, 7], [5, 6, 7], [5, 6, 7]])
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 1, 1]])
    prompts = {"input_ids": ids, "attention_mask": mask}
    decoder = Decoder(record=True)
    sample(model, prompts, decoder, do_sample=False, max_new_tokens=1)
    first, masked, same = decoder.logp[:, 0].tolist()
    assert first == same != masked


def test_recorded_log_mu_is_that_of_the_tempered_distribution(model, prompts):
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
    known = tokens != 0
    torch.testing.assert_close(decoder.logp[known], expected[known], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("most", [40, 5])
def test_an_end_is_announced_once_and_while_others_are_sampled(model, prompts, most):
    announced = {}

    def on_end(row, ids):
        assert row not in announced
        announced[row] = ids

    tokens = sample(model, prompts, Decoder(on_end=on_end), max_new_tokens=most)
    assert tokens.size(1) <= most
    for row, ids in announced.items():
        assert tokens[row][: len(ids)].tolist() == ids
        assert ids[-1] in ENDS
        assert not {*ids[:-1]} & {*ENDS}
    ended = [{*ids[: most - 1]} & {*ENDS} for ids in tokens.tolist()]
    assert announced.keys() == {row for row, end in enumerate(ended) if end}
    assert len(announced) > 0 and (most == 40 or len(announced) < len(PROMPTS))


def test_probabilities_that_are_no_numbers_end_sampling(model, prompts, monkeypatch):
    spoilt = torch.full_like(model.model.norm.weight, torch.nan)
    monkeypatch.setattr(model.model.norm.weight, "data", spoilt)
    with pytest.raises(FloatingPointError, match=r"NaN.* or the temperature \(0.7\) is too small"):
        sample(model, prompts, Decoder())


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("is_deepspeed_zero3_enabled", True),  # processes share weights, and sample in step
        ("is_fsdp_managed_module", True),
        ("can_share_prompts", False),
    ],
)
def test_a_decoder_needs_all_weights_and_a_cache_of_prompts(model, monkeypatch, asked, says):
    assert can_decode(model, config())
    monkeypatch.setattr(generation, asked, lambda *_: says)
    assert not can_decode(model, config())


@pytest.mark.parametrize(
    ("name", "unusual"),
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
def test_nothing_unusual_is_decoded_whoever_says_it(model, monkeypatch, name, unusual):
    asked = config()
    setattr(asked, name, unusual)
    assert not can_decode(model, asked)
    monkeypatch.setattr(model.generation_config, name, unusual)
    assert not can_decode(model, config())
    usual = 1 if name == "num_beams" else None
    assert can_decode(model, config(**{name: usual})) == (name == "num_beams")


@pytest.mark.parametrize("beams", [1, 2])
def test_generate_decodes_only_meanwhile_and_hands_over_log_mu(model, prompts, beams):
    """Beams are left to `generate` itself, which knows no log mu."""
    torch.manual_seed(0)
    expected = model.generate(**prompts, generation_config=config(num_beams=beams))
    torch.manual_seed(0)
    with decoding(model, Decoder(record=True)) as recorded:
        output = model.generate(**prompts, generation_config=config(num_beams=beams))
    assert output.tolist() == expected.tolist()
    completions = output[:, prompts["input_ids"].size(1) :]
    assert recorded == [] if beams == 2 else torch.stack(recorded).shape == completions.shape
    assert "generate" not in vars(model)
