"""log pi and log mu are of one network, whatever a user made of it: dropout, adapters, checkpointing.

Where the learning rate is 0 the policy stays mu, and all importance weights are 1.
"""

import peft
import pytest
import torch
from transformers import GenerationConfig

from rapid import RapidConfig, RapidTrainer
from rapid.training.forward import completion_logp, without_dropout
from tests.training.conformance.families import untrained
from tests.training.conformance.runs import train
from tests.training.loops import logged, weights

OFF_POLICY = {"H": 2, "n_step": 16, "micro_batch_size": 8, "max_steps": 2}
TARGETS = {"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
DROPPING = {
    "lora": lambda: peft.LoraConfig(lora_dropout=0.5, **TARGETS),
    "dora": lambda: peft.LoraConfig(lora_dropout=0.5, use_dora=True, **TARGETS),
    "loha": lambda: peft.LoHaConfig(rank_dropout=0.5, module_dropout=0.5, r=4, **TARGETS),
    "vera": lambda: peft.VeraConfig(vera_dropout=0.5, r=4, **TARGETS),
}
VIRTUAL = {
    "prefix": lambda: peft.PrefixTuningConfig("CAUSAL_LM", num_virtual_tokens=4),
    "prompt": lambda: peft.PromptTuningConfig("CAUSAL_LM", num_virtual_tokens=4),
    "p": lambda: peft.PromptEncoderConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=4, encoder_hidden_size=16
    ),
}


@pytest.mark.parametrize("family", ["GPT2", "OPT"])
def test_a_model_with_dropout_has_weights_of_1_while_it_stays_as_it_is(family, toy_model, tmp_path):
    trainer = train(
        RapidTrainer, untrained(family), toy_model, tmp_path, learning_rate=0.0, **OFF_POLICY
    )
    assert logged(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4)
    assert max(logged(trainer, "rapid/staleness")) < 1e-4
    names = {"GPT2": "attn_pdrop", "OPT": "dropout"}
    assert getattr(trainer.model.config, names[family]) == 0.1  # saved as it was


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
    without_dropout(model)
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=1e-6)


def test_an_adapter_with_dropout_has_weights_of_1_too(toy_model, tmp_path):
    trainer = train(
        RapidTrainer,
        untrained("Llama"),
        toy_model,
        tmp_path,
        arguments={
            "peft_config": peft.LoraConfig(init_lora_weights=False, lora_dropout=0.5, **TARGETS)
        },
        learning_rate=0.0,
        **OFF_POLICY,
    )
    assert logged(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4)


def test_dropout_can_be_left_on_where_nothing_is_weighed(tmp_path):
    settings = {"use_cpu": True, "bf16": False, "report_to": [], "disable_dropout": False}
    RapidConfig(str(tmp_path), H=1, **settings)
    with pytest.raises(ValueError, match="set disable_dropout=True, or H=1"):
        RapidConfig(str(tmp_path), H=2, **settings)


def both(build, toy_model, folder, **others):
    """Trainers after two steps, with prompts shared and not."""
    return [
        train(
            RapidTrainer,
            build(),
            toy_model,
            folder,
            learning_rate=0.1,
            share_prefill=share,
            **OFF_POLICY,
            **others,
        )
        for share in (True, False)
    ]


def test_checkpointing_that_was_enabled_on_the_model_is_seen(toy_model, tmp_path):
    def build():
        model = untrained("Llama", torch.float64)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model

    trainers = both(build, toy_model, tmp_path)
    torch.testing.assert_close(*map(weights, trainers), rtol=0, atol=1e-6)
    assert max(logged(trainer, "rapid/sampler_mismatch")[0] for trainer in trainers) < 1e-5


@pytest.mark.parametrize("kind", VIRTUAL)
def test_virtual_tokens_are_before_every_prompt(kind, toy_model, tmp_path):
    adapter = {"peft_config": VIRTUAL[kind]()}
    trainers = both(lambda: untrained("Llama"), toy_model, tmp_path, arguments=adapter)
    torch.testing.assert_close(*map(weights, trainers), rtol=0, atol=1e-5)
    # What is trained on is what is sampled: a forward pass has the sampler's log-probabilities.
    model = trainers[0].model
    prompt = {"prompt_ids": torch.arange(2, 8)[None], "prompt_mask": torch.ones(1, 6)}
    said = {"return_dict_in_generate": True, "output_logits": True, "max_new_tokens": 8}
    config = GenerationConfig(**said, do_sample=False, eos_token_id=None, pad_token_id=0)
    output = model.generate(prompt["prompt_ids"], generation_config=config)
    sampled = torch.stack(output.logits, 1).log_softmax(-1).amax(-1)  # (1, 8)
    piece = prompt | {"completion_ids": output.sequences[:, 6:], "completion_mask": sampled * 0 + 1}
    found = completion_logp(model, piece, 1, 1.0, share_prefill=True)
    torch.testing.assert_close(found, sampled, rtol=0, atol=1e-5)
