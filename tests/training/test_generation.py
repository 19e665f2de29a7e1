"""Watching a sampler changes nothing that it samples."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rapid.training.generation import instrumented, prefill
from tests.training.loops import ROUNDING

PROMPTS = ["one prompt"] * 3 + ["another, longer prompt"] * 3
NOTHING = {"share_prefill": False, "record_at": None, "ends": torch.arange(1, 60), "on_end": None}


@pytest.fixture(scope="module")
def model(toy_model):
    return AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float64).eval()


@pytest.fixture(scope="module")
def prompts(toy_model):
    tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
    return tokenizer(PROMPTS, return_tensors="pt", padding=True)


def sample(model, prompts, **settings):
    torch.manual_seed(0)
    with torch.no_grad(), instrumented(model, **NOTHING | settings) as recorded:
        output = model.generate(
            input_ids=prompts["input_ids"],
            attention_mask=prompts["attention_mask"],
            max_new_tokens=12,
            do_sample=True,
            top_k=0,
            temperature=0.7,
            eos_token_id=list(range(1, 60)),
            pad_token_id=0,
        )
    return output[:, prompts["input_ids"].size(1) :], recorded


def test_sharing_prompts_samples_the_same(model, prompts):
    plain, _ = sample(model, prompts)
    shared, _ = sample(model, prompts, share_prefill=True)
    assert shared.tolist() == plain.tolist()
    assert len({tuple(row) for row in plain.tolist()}) > 1


def test_each_prompt_is_computed_once(model, prompts):
    seen = []
    hook = model.model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    with torch.no_grad():
        cache = prefill(model, prompts["input_ids"], prompts["attention_mask"])["past_key_values"]
    hook.remove()
    assert seen == [2]
    assert cache.layers[0].keys.shape[0] == 6


def test_different_prompts_share_nothing(model, prompts):
    assert prefill(model, prompts["input_ids"][2:4], prompts["attention_mask"][2:4]) == {}


def test_prompts_that_differ_by_their_mask_only_are_different(model):
    ids = torch.tensor([[5, 6, 7], [5, 6, 7], [5, 6, 7]])
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 1, 1]])
    with torch.no_grad():
        cache = prefill(model, ids, mask)["past_key_values"]
    keys = cache.layers[0].keys
    assert torch.equal(keys[0], keys[2])
    assert not torch.equal(keys[0], keys[1])


def test_recorded_log_mu_is_that_of_the_tempered_distribution(model, prompts):
    tokens, recorded = sample(model, prompts, share_prefill=True, record_at=0.7)
    ids = torch.cat([prompts["input_ids"], tokens], dim=1)
    mask = torch.cat([prompts["attention_mask"], torch.ones_like(tokens)], dim=1)
    position = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, position_ids=position).logits
    width = prompts["input_ids"].size(1)
    logp = torch.log_softmax(logits[:, width - 1 : -1].float() / 0.7, dim=-1)
    expected = logp.gather(2, tokens[:, :, None])[:, :, 0]
    for row in range(len(PROMPTS)):
        length = int((tokens[row] != 0).sum())
        torch.testing.assert_close(
            recorded[row][:length], expected[row][:length], rtol=0, atol=ROUNDING
        )


def test_ends_are_announced_once_with_the_completion_up_to_the_end(model, prompts):
    announced = {}

    def on_end(row, ids):
        assert row not in announced
        announced[row] = ids

    tokens, _ = sample(model, prompts, on_end=on_end)
    assert announced
    for row, ids in announced.items():
        assert tokens[row][: len(ids)].tolist() == ids
        assert 1 <= ids[-1] < 60
        assert not any(1 <= token < 60 for token in ids[:-1])


def test_generate_is_as_it_was_afterwards(model, prompts):
    sample(model, prompts, share_prefill=True)
    assert "generate" not in vars(model)
