"""log pi and log mu are of one network, whatever a user made of it: dropout, adapters, checkpointing.

Where the learning rate is 0 the policy stays mu, and all importance weights are 1.
"""

import json

import peft
import pytest
import torch
from transformers import GenerationConfig

from rapid import RapidTrainer
from rapid.training.dropout import remove_dropout
from rapid.training.forward import completion_logp
from rapid.training.generation import Decoder, decoding
from tests.training.conformance.adapters import TARGETS, config_of
from tests.training.conformance.families import untrained
from tests.training.loops import logged, weights

OFF_POLICY = {"H": 2, "n_step": 16, "micro_batch_size": 8, "max_steps": 2}
DROPPING = {
    "lora": lambda: peft.LoraConfig(lora_dropout=0.5, **TARGETS),
    "dora": lambda: peft.LoraConfig(lora_dropout=0.5, use_dora=True, **TARGETS),
    "loha": lambda: peft.LoHaConfig(rank_dropout=0.5, module_dropout=0.5, r=4, **TARGETS),
    "vera": lambda: peft.VeraConfig(vera_dropout=0.5, r=4, **TARGETS),
}


@pytest.mark.parametrize("family", ["Falcon", "GPT2", "OPT"])
def test_a_model_with_dropout_has_weights_of_1_while_it_stays_as_it_is(family, train, tmp_path):
    model = untrained(family)
    if family == "Falcon":  # reads it from its configuration, where it is 0 by default
        model.config.attention_dropout = model.config.hidden_dropout = 0.1
    trainer = train(RapidTrainer, model, learning_rate=0.0, **OFF_POLICY)
    assert logged(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4)
    assert max(logged(trainer, "rapid/staleness")) < 1e-4
    names = {"Falcon": "attention_dropout", "GPT2": "attn_pdrop", "OPT": "dropout"}
    trainer.save_model(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/config.json").read_text())[names[family]] == 0.1
    assert getattr(trainer.model.config, names[family]) == 0.1


@pytest.mark.parametrize("adapter", DROPPING)
def test_an_adapter_with_dropout_computes_the_same_while_it_is_trained(adapter):
    model = peft.get_peft_model(untrained("Llama"), DROPPING[adapter]())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # adapters start as nothing
                parameter.add_(torch.linspace(-1, 1, parameter.numel()).view(parameter.shape))
    ids = torch.arange(2, 14)[None]
    expected = model.eval()(ids).logits
    model.train()
    assert (model(ids).logits - expected).abs().max() > 1e-4
    remove_dropout(model)
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=1e-6)


def both(train, build, **others):
    """Trainers after two steps, with prompts shared and not."""
    settings = {"learning_rate": 0.1, **OFF_POLICY, **others}
    return [train(RapidTrainer, build(), share_prefill=on, **settings) for on in (True, False)]


def test_checkpointing_that_was_enabled_on_the_model_is_seen(train):
    def build():
        model = untrained("Llama", torch.float64)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model

    trainers = both(train, build)
    torch.testing.assert_close(*map(weights, trainers), rtol=0, atol=1e-6)
    assert max(logged(trainer, "rapid/sampler_mismatch")[0] for trainer in trainers) < 1e-5


@pytest.mark.parametrize("kind", ["p", "prefix", "prompt"])
def test_virtual_tokens_are_before_every_prompt(kind, toy_model, train):
    adapter = {"peft_config": config_of(kind, toy_model)}
    trainers = both(train, lambda: untrained("Llama"), arguments=adapter)
    torch.testing.assert_close(*map(weights, trainers), rtol=0, atol=1e-5)
    # What is trained on is what is sampled: a forward pass has the sampler's log-probabilities.
    model = trainers[0].model
    prompt = {"prompt_ids": torch.arange(2, 8)[None], "prompt_mask": torch.ones(1, 6)}
    said = {"return_dict_in_generate": True, "output_logits": True, "max_new_tokens": 8}
    config = GenerationConfig(**said, do_sample=False, eos_token_id=None, pad_token_id=0)
    with decoding(model, Decoder()):
        output = model.generate(prompt["prompt_ids"], generation_config=config)
    sampled = torch.stack(output.logits, 1).log_softmax(-1).amax(-1)  # (1, 8)
    micro_batch = prompt | {
        "completion_ids": output.sequences[:, 6:],
        "completion_mask": sampled * 0 + 1,
    }
    found, _ = completion_logp(model, micro_batch, 1, 1.0, share_prefill=True)
    torch.testing.assert_close(found, sampled, rtol=0, atol=1e-5)


OWN = {
    "min_p": 0.9,
    "suppress_tokens": list(range(2, 250)),
    "no_repeat_ngram_size": 1,
    "forced_eos_token_id": 1,
    "num_beams": 2,
    "use_cache": False,
    "cache_implementation": "static",
}


def sampled_with(train, name, **sizes):
    model = untrained("Llama")
    setattr(model.generation_config, name, OWN[name])
    trainer = train(RapidTrainer, model, learning_rate=0.0, **sizes)
    assert getattr(trainer.model.generation_config, name) == OWN[name]
    return trainer


def test_what_a_model_says_of_tokens_is_heard_on_policy(train):
    trainer = sampled_with(train, "suppress_tokens", n_step=16, micro_batch_size=8, H=1)
    _, micro_batch, _ = trainer.last_pass
    said = {*micro_batch["completion_ids"][micro_batch["completion_mask"].bool()].tolist()}
    assert len(said) > 1 and not said & {*OWN["suppress_tokens"]}


def test_what_a_model_says_of_generation_does_not_change_what_is_weighed(train):
    plain = train(RapidTrainer, untrained("Llama"), learning_rate=0.0, **OFF_POLICY)
    for name in OWN:
        trainer = sampled_with(train, name, **OFF_POLICY)
        assert trainer._logs["completion"] == plain._logs["completion"], name
        assert logged(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4), name


def test_an_adapters_model_is_sampled_as_itself_too(train):
    model = untrained("Llama")
    model.generation_config.suppress_tokens = OWN["suppress_tokens"]
    given = {"peft_config": peft.LoraConfig(init_lora_weights=False, **TARGETS)}
    trainer = train(RapidTrainer, model, arguments=given, learning_rate=0.0, **OFF_POLICY)
    assert logged(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4)
    assert model.generation_config.suppress_tokens
