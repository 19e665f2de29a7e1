"""Sampling from a toy model, with transformers and with vLLM."""

import json
import os
import shutil
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer, Qwen2ForCausalLM

from rapid import sampling
from rapid.benchmarks.prompts import tokenize_prompt
from tests.subprocesses import python

SETTINGS = {"max_tokens": 8, "temperature": 1.0, "top_p": 1.0}


@pytest.fixture
def sample(toy_model, monkeypatch):
    """Samples from the toy model, four completions at a time."""
    monkeypatch.setattr(sampling, "BATCH", 4)
    return partial(sampling.sample, "transformers", toy_model)


def test_one_completion_for_each_prompt_within_the_limit(sample):
    samples = sample(["a", "bb", "ccc"] * 2, **SETTINGS, seed=0)
    assert len(samples) == 6
    assert all(1 <= one.tokens <= 8 for one in samples)


def test_the_same_seed_gives_the_same_completions(sample):
    first, again, other = (sample(["a"] * 4, **SETTINGS, seed=s) for s in (0, 0, 1))
    assert first == again != other


def test_generate_is_asked_for_what_was_asked_and_tokens_count_up_to_the_end(
    sample, toy_model, monkeypatch
):
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    (x,) = tokenizer("x")["input_ids"]
    rows = torch.tensor([[x, x, end, pad], [x, x, end, end], [x, x, x, x], [x, end, pad, pad]])

    def generate(self, input_ids, generation_config, **_):
        asked.append(generation_config)
        return torch.cat([input_ids, rows], dim=1)

    asked = []
    monkeypatch.setattr(Qwen2ForCausalLM, "generate", generate)
    samples = sample(["a"] * 4, max_tokens=4, temperature=0.6, top_p=0.9, seed=0)
    (config,) = asked
    assert (config.do_sample, config.temperature, config.top_p) == (True, 0.6, 0.9)
    assert (config.top_k, config.max_new_tokens) == (0, 4)
    assert (config.pad_token_id, config.eos_token_id) == (pad, [end])
    assert [one.tokens for one in samples] == [3, 3, 4, 2]
    assert [one.text for one in samples] == ["xx", "xx", "xxxx", "x"]


def test_a_models_own_penalties_are_not_its_distribution(sample, toy_model, tmp_path):
    """What is left open, transformers takes from the model's generation_config.json."""
    shutil.copytree(toy_model, tmp_path, dirs_exist_ok=True)
    own = tmp_path / "generation_config.json"
    known = json.loads(own.read_text()) if own.exists() else {}
    own.write_text(json.dumps(known | {"repetition_penalty": 1e6, "min_p": 0.9}))
    given = {"prompts": ["a"] * 4, **SETTINGS, "seed": 0}
    assert sampling.sample("transformers", tmp_path, **given) == sample(**given)


def test_prompts_of_like_length_are_a_batch_and_completions_come_in_the_order_of_prompts(
    sample, monkeypatch
):
    def echo(self, input_ids, attention_mask, **_):
        padding.append(int((attention_mask == 0).sum()))
        return torch.cat([input_ids, input_ids[:, -1:]], dim=1)

    padding = []
    monkeypatch.setattr(Qwen2ForCausalLM, "generate", echo)
    samples = sample(["a", "bb", "c", "dd", "ee", "f", "gg", "h"], **SETTINGS, seed=0)
    assert "".join(one.text for one in samples) == "abcdefgh"
    assert padding == [0, 0]  # of four each


def test_vllm_is_asked_for_what_was_asked_once_for_each_prompt(toy_model, monkeypatch):
    asked = []

    class Engine:
        def __init__(self, **settings):
            asked.append(settings)
            core = SimpleNamespace(shutdown=lambda: asked.append("end"))
            self.llm_engine = SimpleNamespace(engine_core=core)

        def generate(self, prompts, settings):
            asked.append((prompts, settings))
            one = SimpleNamespace(text="x", token_ids=[1, 2])
            return [SimpleNamespace(outputs=[one] * each["n"]) for each in settings]

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=Engine, SamplingParams=dict))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    drawn = {"max_tokens": 4, "temperature": 0.6, "top_p": 0.9}
    found = sampling.sample("vllm", toy_model, ["a", "a", "b"], **drawn, seed=3, tensor_parallel=2)
    engine, (prompts, settings), end = asked
    assert (engine["seed"], engine["tensor_parallel_size"], engine["dtype"]) == (3, 2, "float32")
    assert settings == [drawn | {"top_k": 0, "n": n} for n in (2, 1)]
    assert (len(prompts), end, [one.tokens for one in found]) == (2, "end", [2, 2, 2])


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def test_a_chat_prompt_goes_into_the_models_own_template(toy_model):
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    tokenizer.chat_template = CHAT
    said = [{"role": "user", "content": "hi"}]
    trl = tokenizer.apply_chat_template([said], add_generation_prompt=True, return_dict=True)
    assert tokenize_prompt(tokenizer, "hi", chat=True) == trl["input_ids"][0]
    assert tokenizer.decode(tokenize_prompt(tokenizer, "hi", chat=True)) == "<user>hi<assistant>"
    assert tokenize_prompt(tokenizer, "hi", chat=False) == tokenizer("hi")["input_ids"]


VLLM = """
import json, sys
from rapid.sampling import sample
settings = {"max_tokens": 5, "temperature": 1e-6, "top_p": 1.0, "seed": 3}
found = {}
for kind in ("transformers", "vllm"):
    samples = sample(kind, sys.argv[1], ["ab", "ab", "c"], **settings)
    found[kind] = [one.model_dump() for one in samples]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_vllm_samples_what_transformers_does(toy_model):
    """At a temperature of almost 0 both take the likeliest token."""
    done = python("-c", VLLM, toy_model, VLLM_CPU_KVCACHE_SPACE="1")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["vllm"] == found["transformers"]
    assert len(found["vllm"]) == 3
