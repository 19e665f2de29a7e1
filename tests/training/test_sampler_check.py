"""A sampler that is not the policy stops training at once, and rounding never does."""

from types import SimpleNamespace

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config

from rapid import RapidTrainer
from rapid.training import generation, sampler_check
from rapid.training.caches import prefill_prompts
from rapid.training.sampler_check import (
    EXACT_BOUND,
    ROUNDED_BOUND,
    compare_logps,
    mismatch_bound,
    select_evenly,
)
from tests.training.conformance.adapters import config_of
from tests.training.conformance.families import untrained
from tests.training.loops import build, logged, run, weights

SIZES = {"n_step": 6, "H": 1, "num_generations": 3}
NOT_THE_POLICY = r"step 1: completions are not sampled from the policy.* tokens differ by .* nats"


@pytest.fixture
def forgetful(monkeypatch):
    """A decoder that does not look at the first half of each prompt."""

    def forget(model, ids, mask, cache):
        half = mask.clone()
        half[:, : ids.size(1) // 2] = 0
        return prefill_prompts(model, ids, half, cache)

    monkeypatch.setattr(generation, "prefill_prompts", forget)


@pytest.mark.parametrize("settings", [{}, {"H": 2}, {"temperature": 0.7}, {"top_p": 0.9}], ids=str)
def test_a_sampler_that_ignores_part_of_a_prompt_is_stopped(train, forgetful, settings):
    torch.manual_seed(0)
    model = untrained("Llama")
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    with pytest.raises(RuntimeError, match=NOT_THE_POLICY) as stopped:
        train(RapidTrainer, model, **SIZES | settings)
    for text in ("between generate and", f"transformers {sampler_check.version('transformers')}"):
        assert text in str(stopped.value)


def test_a_model_whose_generate_forgets_virtual_tokens_is_stopped(train, toy_model, monkeypatch):
    """As PEFT 0.21 does with transformers 5.24, where `generate` keeps a cache."""
    monkeypatch.setattr(
        peft.PeftModelForCausalLM,
        "prepare_inputs_for_generation",
        lambda self, *args, **kwargs: self.base_model_prepare_inputs_for_generation(
            *args, **kwargs
        ),
    )
    model = untrained("Llama")
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    adapter = {"peft_config": config_of("prompt", toy_model)}
    with pytest.raises(RuntimeError, match=NOT_THE_POLICY):
        train(RapidTrainer, model, arguments=adapter, **SIZES)


def test_a_difference_that_is_meant_is_let_through(train, forgetful):
    train(RapidTrainer, untrained("Llama"), max_sampler_mismatch=1e9, **SIZES)


def test_a_resumed_run_is_checked_again(toy_model, tmp_path, monkeypatch):
    settings = {"dtype": torch.float32, "save_strategy": "steps", "save_steps": 1, "max_steps": 2}
    run(toy_model, tmp_path, "pg", **settings)
    monkeypatch.setattr(sampler_check, "mismatch_bound", lambda trainer: -1.0)
    with pytest.raises(RuntimeError, match="step 2: completions are not sampled"):
        trainer = build(toy_model, tmp_path, "pg", **settings)
        trainer.train(str(tmp_path / "checkpoint-1"))


@pytest.mark.parametrize("objective", ["rapid", "pg", "trl"])
def test_the_check_changes_nothing_of_a_run(toy_model, tmp_path, monkeypatch, objective):
    settings = {"dtype": torch.float32, "max_steps": 2}
    checked = run(toy_model, tmp_path, objective, **settings)
    assert not checked._sampler_check.due
    monkeypatch.setattr(sampler_check.SamplerCheck, "run", lambda *_: None)
    monkeypatch.setattr(sampler_check.SamplerCheck, "collect", lambda *_: None)
    unchecked = run(toy_model, tmp_path, objective, **settings)
    assert torch.equal(weights(checked), weights(unchecked))
    assert logged(checked, "loss") == logged(unchecked, "loss")


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.2},
        {"temperature": 3.0},
        {"top_k": 3, "repetition_penalty": 1.5},
        {"generation_kwargs": {"temperature": 0.3}},
        {"generation_kwargs": {"do_sample": False}, "temperature": 0.5},
        {"generation_kwargs": {"num_beams": 2}},
        {"generation_kwargs": {"min_new_tokens": 4}, "cache_implementation": "static"},
        {"bf16": True},
    ],
    ids=str,
)
def test_settings_of_sampling_are_no_mismatch(train, settings):
    train(RapidTrainer, untrained("Llama"), **SIZES | settings)


def test_dropout_that_was_asked_for_is_no_mismatch(train, toy_model):
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "resid_pdrop": 0.9}
    vocabulary = AutoModelForCausalLM.from_pretrained(toy_model).config.vocab_size
    config = GPT2Config(vocab_size=vocabulary, pad_token_id=0, **sizes)
    model = AutoModelForCausalLM.from_config(config)
    train(RapidTrainer, model, objective="trl", disable_dropout=False, **SIZES)


def test_rows_are_taken_at_even_distances():
    assert select_evenly(3, 8).tolist() == [0, 1, 2]
    assert select_evenly(8, 4).tolist() == [0, 2, 4, 6]
    assert select_evenly(7, 3).tolist() == [0, 2, 4]


def test_only_numbers_at_tokens_are_compared():
    sampled = torch.tensor([[-1.0, -2.0, torch.nan], [-1.0, -9.0, -9.0]])
    scored = torch.tensor([[-1.5, -2.0, -7.0], [-1.25, -1.0, -1.0]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    assert compare_logps(sampled, scored, mask).tolist() == [0.75, 0.5, 3.0]
    assert compare_logps(sampled, scored, mask * 0).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("dtype", "given", "bound"),
    [
        (torch.float32, {}, EXACT_BOUND),
        (torch.float32, {"temperature": 2.0}, EXACT_BOUND),
        (torch.float32, {"temperature": 0.25}, 4 * EXACT_BOUND),
        (torch.float32, {"bf16": True}, ROUNDED_BOUND),
        (torch.bfloat16, {}, ROUNDED_BOUND),
        (torch.float32, {"quantised": True}, ROUNDED_BOUND),
        (torch.bfloat16, {"max_sampler_mismatch": 7.0}, 7.0),
    ],
)
def test_the_bound_is_that_of_the_precision(dtype, given, bound):
    settings = {"bf16": False, "fp16": False, "max_sampler_mismatch": None} | given
    trainer = SimpleNamespace(
        model=SimpleNamespace(dtype=dtype, is_quantized=given.get("quantised", False)),
        args=SimpleNamespace(**settings),
        temperature=given.get("temperature", 1.0),
        use_vllm=False,
    )
    assert mismatch_bound(trainer) == bound
