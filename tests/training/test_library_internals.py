"""What is tied to the inside of a library, one test for each point: it names library and behaviour.

Where one fails with a newer version, the code that it names has to follow; the check of sampling
(`rapid/training/sampler_check.py`) stops training where a run would learn something else. What is
tied to TRL's inside is in tests/training/test_trl.py.
"""

import inspect

import peft
import pytest
import torch
from transformers import DynamicCache, GenerationConfig
from transformers.cache_utils import DynamicLayer

from rapid.training.caches import CACHE, has_virtual_tokens, model_config
from rapid.training.generation import Decoder, GeneratedLogp, PreallocatedLayer, decoding
from tests.training.conformance.adapters import config_of
from tests.training.conformance.families import untrained

IDS = torch.arange(2, 14).view(2, 6)
USUAL = {"max_new_tokens": 5, "eos_token_id": None, "pad_token_id": 0}


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    return untrained("Llama").eval()


def generate(model, custom_generate=None, mask=None, **settings):
    mask = torch.ones_like(IDS) if mask is None else mask
    config = GenerationConfig(**USUAL | settings)
    inputs = {"input_ids": IDS, "attention_mask": mask}
    return model.generate(**inputs, generation_config=config, custom_generate=custom_generate)


def test_transformers_hands_custom_generate_what_the_decoder_takes(llama):
    """transformers: a callable `custom_generate` gets model, ids, processors and criteria."""
    calls = []

    def noted(model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs):
        calls.append((logits_processor, kwargs.get("attention_mask")))
        assert generation_config.max_length == input_ids.size(1) + USUAL["max_new_tokens"]
        assert stopping_criteria(input_ids, None).shape == (2,)
        return input_ids

    padded = torch.tensor([[0, 1, 1, 1, 1, 1], [1] * 6])
    generate(llama, noted, do_sample=True, temperature=0.5, top_k=0)
    generate(llama, noted, padded, do_sample=True, top_k=0)
    assert [len(processors) for processors, _ in calls] == [1, 0]
    assert calls[0][1] is None or calls[0][1].all()  # dropped from transformers 5.18 on
    assert calls[1][1].tolist() == padded.tolist()


def test_transformers_names_the_cache_in_arguments_and_outputs_alike(llama):
    """transformers: `past_key_values`, and `cache` from 5.24 on, is argument and output."""
    assert CACHE in inspect.signature(llama.forward).parameters
    assert isinstance(getattr(llama(IDS, use_cache=True), CACHE), DynamicCache)


def test_transformers_layers_of_a_cache_can_be_replaced(llama):
    """transformers: `DynamicCache.layers`, and DynamicLayer's `lazy_initialization` and `update`."""
    cache = DynamicCache(config=model_config(llama))
    assert {type(layer) for layer in cache.layers} == {DynamicLayer}
    new = torch.randn(2, 1, 3, 4)
    layers = DynamicLayer(), PreallocatedLayer()
    for layer in layers:
        for _ in range(40):
            layer.update(new, new)
        layer.batch_select_indices(torch.tensor([1]))
        layer.update(new[:1], new[:1])
    assert torch.equal(layers[0].keys, layers[1].keys)
    assert layers[0].get_seq_length() == layers[1].get_seq_length() == 123


def test_transformers_asks_criteria_after_each_forward_pass(llama):
    """transformers: a criterion is called with a token after the pass that it was drawn from."""
    logps = GeneratedLogp(1.0)
    config = GenerationConfig(**USUAL, do_sample=True, top_k=0)
    inputs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "generation_config": config}
    output, drawn = logps.generate(llama, llama.generate, **inputs)
    scored = llama(output).logits[:, 5:-1].log_softmax(-1)
    expected = scored.gather(2, output[:, 6:, None])[..., 0]
    torch.testing.assert_close(torch.stack(drawn), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["p", "prefix", "prompt"])
def test_peft_looks_for_the_cache_by_its_older_name(kind, toy_model):
    """PEFT: `base_model_prepare_inputs_for_generation`, whose `past_key_values` it looks at."""
    torch.manual_seed(0)
    model = peft.get_peft_model(untrained("Llama"), config_of(kind, toy_model)).eval()
    assert has_virtual_tokens(model)
    drawn: list[torch.Tensor] = []
    with decoding(model, Decoder(), drawn):
        output = generate(model, do_sample=False)
    logits = model(output, attention_mask=torch.ones_like(output)).logits  # of virtual tokens too
    scored = logits[:, -6:-1].log_softmax(-1)
    expected = scored.gather(2, output[:, 6:, None])[..., 0]
    torch.testing.assert_close(torch.stack(drawn), expected, rtol=0, atol=1e-5)
