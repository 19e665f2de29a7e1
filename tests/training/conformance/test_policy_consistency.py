"""Sampling and training use the same network, with dropout, adapters or checkpointing.

With a learning rate of 0 the policy stays the behaviour policy, and all importance weights are 1.
"""

import json

import peft
import pytest
import torch

from rapid import RapidTrainer
from rapid.training.dropout import remove_dropout
from tests.training.conformance.adapters import TARGETS, build_adapter_config
from tests.training.conformance.families import build_untrained
from tests.training.loops import get_weights, logged_values

OFF_POLICY = {"H": 2, "n_step": 16, "micro_batch_size": 8, "max_steps": 2}
DROPOUT_ADAPTERS = {
    "lora": lambda: peft.LoraConfig(lora_dropout=0.5, **TARGETS),
    "dora": lambda: peft.LoraConfig(lora_dropout=0.5, use_dora=True, **TARGETS),
    "loha": lambda: peft.LoHaConfig(rank_dropout=0.5, module_dropout=0.5, r=4, **TARGETS),
    "vera": lambda: peft.VeraConfig(vera_dropout=0.5, r=4, **TARGETS),
}


@pytest.mark.parametrize("family", ["Falcon", "GPT2", "OPT"])
def test_unchanged_model_with_dropout_has_importance_weights_of_one(family, train, tmp_path):
    model = build_untrained(family)
    if family == "Falcon":  # its configuration has a dropout of 0 by default
        model.config.attention_dropout = model.config.hidden_dropout = 0.1
    trainer = train(RapidTrainer, model, learning_rate=0.0, **OFF_POLICY)
    assert logged_values(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4)
    assert max(logged_values(trainer, "rapid/staleness")) < 1e-4
    config_fields = {"Falcon": "attention_dropout", "GPT2": "attn_pdrop", "OPT": "dropout"}
    trainer.save_model(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/config.json").read_text())[config_fields[family]] == 0.1
    assert getattr(trainer.model.config, config_fields[family]) == 0.1


@pytest.mark.parametrize("adapter", DROPOUT_ADAPTERS)
def test_adapter_dropout_is_removed_in_training(adapter):
    model = peft.get_peft_model(build_untrained("Llama"), DROPOUT_ADAPTERS[adapter]())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # adapters start at zero
                parameter.add_(torch.linspace(-1, 1, parameter.numel()).view(parameter.shape))
    ids = torch.arange(2, 14)[None]
    expected = model.eval()(ids).logits
    model.train()
    assert (model(ids).logits - expected).abs().max() > 1e-4
    remove_dropout(model)
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=1e-6)


def train_with_and_without_sharing(train, build_model, **overrides):
    """Return trainers after two steps, with shared prompts and without."""
    settings = {"learning_rate": 0.1, **OFF_POLICY, **overrides}
    return [
        train(RapidTrainer, build_model(), share_prefill=share, **settings)
        for share in (True, False)
    ]


def test_gradient_checkpointing_enabled_on_model_is_respected(train):
    def build_model():
        model = build_untrained("Llama", torch.float64)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model

    trainers = train_with_and_without_sharing(train, build_model)
    torch.testing.assert_close(*map(get_weights, trainers), rtol=0, atol=1e-6)
    assert max(logged_values(trainer, "rapid/sampler_mismatch")[0] for trainer in trainers) < 1e-5


@pytest.mark.parametrize("kind", ["p", "prefix", "prompt"])
def test_virtual_tokens_precede_every_prompt(kind, toy_model, train):
    adapter_arguments = {"peft_config": build_adapter_config(kind, toy_model)}
    trainers = train_with_and_without_sharing(
        train, lambda: build_untrained("Llama"), arguments=adapter_arguments
    )
    torch.testing.assert_close(*map(get_weights, trainers), rtol=0, atol=1e-5)


GENERATION_SETTINGS = {
    "min_p": 0.9,
    "suppress_tokens": list(range(2, 250)),
    "no_repeat_ngram_size": 1,
    "forced_eos_token_id": 1,
    "num_beams": 2,
    "use_cache": False,
    "cache_implementation": "static",
}


def train_with_generation_setting(train, name, **sizes):
    model = build_untrained("Llama")
    setattr(model.generation_config, name, GENERATION_SETTINGS[name])
    trainer = train(RapidTrainer, model, learning_rate=0.0, **sizes)
    assert getattr(trainer.model.generation_config, name) == GENERATION_SETTINGS[name]
    return trainer


def test_generation_config_of_model_applies_on_policy(train):
    trainer = train_with_generation_setting(
        train, "suppress_tokens", n_step=16, micro_batch_size=8, H=1
    )
    _, micro_batch, _ = trainer.last_pass
    sampled_tokens = {
        *micro_batch["completion_ids"][micro_batch["completion_mask"].bool()].tolist()
    }
    assert len(sampled_tokens) > 1 and not sampled_tokens & {
        *GENERATION_SETTINGS["suppress_tokens"]
    }


def test_generation_config_of_model_is_ignored_off_policy(train):
    plain = train(RapidTrainer, build_untrained("Llama"), learning_rate=0.0, **OFF_POLICY)
    for name in GENERATION_SETTINGS:
        trainer = train_with_generation_setting(train, name, **OFF_POLICY)
        assert trainer._logs["completion"] == plain._logs["completion"], name
        assert logged_values(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4), name


def test_generation_config_of_adapter_model_is_ignored_off_policy(train):
    model = build_untrained("Llama")
    model.generation_config.suppress_tokens = GENERATION_SETTINGS["suppress_tokens"]
    arguments = {"peft_config": peft.LoraConfig(init_lora_weights=False, **TARGETS)}
    trainer = train(RapidTrainer, model, arguments=arguments, learning_rate=0.0, **OFF_POLICY)
    assert logged_values(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4)
    assert model.generation_config.suppress_tokens
