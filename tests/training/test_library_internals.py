"""Internals of libraries that the trainer relies on; each test names library and behaviour.

If a test fails with a newer version, adapt the code that uses the behaviour. Until then
`rapid/training/sampler_check.py` stops training that would have a wrong gradient.
tests/training/test_trl.py tests TRL's internals.
"""

import inspect

import peft
import pytest
import torch
from transformers import DynamicCache, GenerationConfig
from transformers.cache_utils import DynamicLayer

from rapid.training.caches import CACHE, get_text_config, has_virtual_tokens
from rapid.training.generation import Decoder, PreallocatedLayer, generate_with_logps, use_decoder
from tests.training.conformance.adapters import build_adapter_config
from tests.training.conformance.families import build_untrained

IDS = torch.arange(2, 14).view(2, 6)
DEFAULTS = {"max_new_tokens": 5, "eos_token_id": None, "pad_token_id": 0}


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    return build_untrained("Llama").eval()


def generate(model, custom_generate=None, mask=None, **settings):
    mask = torch.ones_like(IDS) if mask is None else mask
    config = GenerationConfig(**DEFAULTS | settings)
    inputs = {"input_ids": IDS, "attention_mask": mask}
    return model.generate(**inputs, generation_config=config, custom_generate=custom_generate)


def test_transformers_passes_custom_generate_the_arguments_of_the_decoder(llama):
    """transformers: a callable `custom_generate` gets model, ids, processors and criteria."""
    calls = []

    def record_call(
        model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs
    ):
        calls.append((logits_processor, kwargs.get("attention_mask")))
        assert generation_config.max_length == input_ids.size(1) + DEFAULTS["max_new_tokens"]
        assert stopping_criteria(input_ids, None).shape == (2,)
        return input_ids

    mask_with_padding = torch.tensor([[0, 1, 1, 1, 1, 1], [1] * 6])
    generate(llama, record_call, do_sample=True, temperature=0.5, top_k=0)
    generate(llama, record_call, mask_with_padding, do_sample=True, top_k=0)
    assert [len(processors) for processors, _ in calls] == [1, 0]
    assert calls[0][1] is None or calls[0][1].all()  # transformers drops it from 5.18 on
    assert calls[1][1].tolist() == mask_with_padding.tolist()


def test_transformers_uses_one_name_for_cache_argument_and_output(llama):
    """transformers: `past_key_values`, or `cache` from 5.24 on, is an argument and an output."""
    assert CACHE in inspect.signature(llama.forward).parameters
    assert isinstance(getattr(llama(IDS, use_cache=True), CACHE), DynamicCache)


def test_transformers_cache_layers_can_be_replaced(llama):
    """transformers: `DynamicCache.layers`, and DynamicLayer's `lazy_initialization` and `update`."""
    cache = DynamicCache(config=get_text_config(llama))
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


def test_transformers_calls_stopping_criteria_after_each_forward_pass(llama):
    """transformers: a criterion is called after the forward pass from which a token was drawn."""
    config = GenerationConfig(**DEFAULTS, do_sample=True, top_k=0)
    inputs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "generation_config": config}
    output, drawn = generate_with_logps(llama, llama.generate, 1.0, **inputs)
    scored = llama(output).logits[:, 5:-1].log_softmax(-1)
    expected = scored.gather(2, output[:, 6:, None])[..., 0]
    torch.testing.assert_close(torch.stack(drawn), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["p", "prefix", "prompt"])
def test_peft_with_virtual_tokens_generates_with_cache(kind, toy_model):
    """PEFT: `base_model_prepare_inputs_for_generation` reads the cache as `past_key_values`."""
    torch.manual_seed(0)
    model = peft.get_peft_model(
        build_untrained("Llama"), build_adapter_config(kind, toy_model)
    ).eval()
    assert has_virtual_tokens(model)
    drawn: list[torch.Tensor] = []
    with use_decoder(model, Decoder(), drawn):
        output = generate(model, do_sample=False)
    # The logits have positions of virtual tokens, too.
    logits = model(output, attention_mask=torch.ones_like(output)).logits
    scored = logits[:, -6:-1].log_softmax(-1)
    expected = scored.gather(2, output[:, 6:, None])[..., 0]
    torch.testing.assert_close(torch.stack(drawn), expected, rtol=0, atol=1e-5)
