"""TransformersSampler on a toy model."""

import pytest

from rapid.sampling import TransformersSampler

SETTINGS = {"max_tokens": 8, "temperature": 1.0, "top_p": 1.0}


@pytest.fixture(scope="module")
def sampler(toy_model):
    return TransformersSampler(toy_model, batch_size=4)


def test_one_completion_for_each_prompt_in_order_and_within_the_limit(sampler):
    counted = []
    samples = sampler.sample(["a", "bb", "ccc"] * 2, **SETTINGS, seed=0, progress=counted.append)
    assert len(samples) == 6
    assert counted == [4, 2]
    assert all(1 <= sample.tokens <= 8 for sample in samples)


def test_the_same_seed_gives_the_same_completions(sampler):
    first, again, other = (sampler.sample(["a"] * 4, **SETTINGS, seed=s) for s in (0, 0, 1))
    assert first == again != other


def test_tokens_are_counted_up_to_the_first_end(sampler):
    end, pad = sampler.tokenizer.eos_token_id, sampler.tokenizer.pad_token_id
    x = sampler.tokenizer("x")["input_ids"]
    ids = sampler.ends.new_tensor
    assert sampler._sample(ids([*x, *x, end, pad, pad])).tokens == 3
    assert sampler._sample(ids([*x, end, end])).tokens == 2
    assert sampler._sample(ids(x * 5)).tokens == 5
    assert sampler._sample(ids([*x, end, pad])).text == "x"
