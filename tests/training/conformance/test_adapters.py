"""Every kind of adapter: importance weights are 1 without updates, and GRPO's gradient is TRL's."""

import peft
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback
from trl.trainer.utils import add_fused_lm_head

from rapid import RapidTrainer
from rapid.training.forward import compute_completion_logps
from tests.training.conformance.adapters import FAMILY, KINDS, TARGETS, build_adapter_config
from tests.training.conformance.families import build_untrained, build_without_dropout
from tests.training.conformance.test_families import compute_logps_one_by_one
from tests.training.conftest import GROUP_SIZE
from tests.training.loops import ScriptedGrpoTrainer, ScriptedTrainer, logged_values

QUICK = ("adaption", "alora", "lora", "prefix")
ALL_KINDS = [
    kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS
]
SIZES = {"n_step": 16, "micro_batch_size": 8}
RAPID_SETTINGS = {"objective": "grpo", "H": 1, **SIZES}
TRL_SETTINGS = {
    "loss_type": "grpo",
    "per_device_train_batch_size": 16,
    "use_bias_correction_kl": False,
}


class PerturbAdapter(TrainerCallback):
    """Perturbs the adapter's weights at the start, always equally: most adapters start at zero."""

    def on_train_begin(self, args, state, control, model=None, **_):
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for _, parameter in sorted(model.named_parameters()):
                if parameter.requires_grad:
                    parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        self.start = get_trained_weights(model)


def get_trained_weights(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters() if p.requires_grad])


def build_arguments(kind, toy_model, callback) -> dict:
    return {"peft_config": build_adapter_config(kind, toy_model), "callbacks": [callback]}


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_unchanged_adapter_has_importance_weights_of_one(kind, toy_model, train):
    model, arguments = (
        build_untrained(FAMILY.get(kind, "Llama")),
        build_arguments(kind, toy_model, PerturbAdapter()),
    )
    settings = SIZES | {"H": 2, "max_steps": 2, "learning_rate": 0.0}
    trainer = train(RapidTrainer, model, arguments=arguments, **settings)
    assert logged_values(trainer, "rapid/weight") == pytest.approx([1, 1], abs=2e-5)
    assert all(mismatch < 2e-6 for mismatch in logged_values(trainer, "rapid/sampler_mismatch"))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_grpo_gradient_matches_trl_with_reference_without_adapter(kind, toy_model, train):
    settings = {"learning_rate": 1.0, "beta": 0.5}  # the step of SGD is the gradient
    if family := FAMILY.get(kind):
        settings["router_aux_loss_coef"] = 0.0
    trainers, perturb = [], PerturbAdapter()
    for trainer_class, trainer_settings in (
        (ScriptedGrpoTrainer, TRL_SETTINGS),
        (ScriptedTrainer, RAPID_SETTINGS),
    ):
        if kind == "adaption" and trainer_class is ScriptedGrpoTrainer:
            continue  # TRL's trainer fails: the adapter keeps the forward from before TRL's patch
        model = build_without_dropout(family or "Llama")
        arguments = build_arguments(kind, toy_model, perturb)
        trainers.append(
            train(trainer_class, model, arguments=arguments, **settings, **trainer_settings)
        )
    assert logged_values(trainers[-1], "kl")[0] > 1e-8  # the policy is not the reference
    steps = [get_trained_weights(trainer.model) - perturb.start for trainer in trainers]
    assert steps[-1].abs().max() > 1e-4
    torch.testing.assert_close(
        steps[0], steps[-1], rtol=1e-3, atol=1e-4 * float(steps[0].abs().max())
    )
    assert logged_values(trainers[0], "kl") == pytest.approx(
        logged_values(trainers[-1], "kl"), rel=1e-3, abs=1e-9
    )


VIRTUAL_TOKEN_KINDS = ("adaption", "p", "prefix", "prompt")


@pytest.mark.parametrize("kind", VIRTUAL_TOKEN_KINDS)
def test_virtual_tokens_do_not_attend_to_padding(kind, toy_model, micro_batch):
    model = peft.get_peft_model(
        build_without_dropout("Llama"), build_adapter_config(kind, toy_model)
    )
    PerturbAdapter().on_train_begin(None, None, None, model)
    add_fused_lm_head(model.get_base_model(), temperature=1.0)
    if kind == "adaption":
        model.base_model.forward = model.get_base_model().forward
    logp, _ = compute_completion_logps(model, micro_batch, GROUP_SIZE, 1.0, True)
    logp = logp * micro_batch["completion_mask"]
    torch.testing.assert_close(
        logp, compute_logps_one_by_one(model, micro_batch), rtol=0, atol=2e-5
    )


def test_prompts_with_virtual_tokens_are_sampled_unpadded(toy_model, train):
    rows = Dataset.from_list([{"prompt": "long " * (number % 3) + "prompt"} for number in range(8)])
    arguments = build_arguments("prefix", toy_model, PerturbAdapter()) | {"train_dataset": rows}
    starts = []

    class PromptLengthRecorder(RapidTrainer):
        def _use_decoder(self, start):
            starts.append(start)
            return super()._use_decoder(start)

    train(PromptLengthRecorder, build_untrained("Llama"), arguments=arguments, H=1, **SIZES)
    # Each length is sampled apart. Neighbours differ in length in any order of the four prompts.
    assert len(starts) > 1


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_pretrained_adapter_is_its_own_reference(beta, train):
    def build_peft_model():
        torch.manual_seed(1)
        config = peft.LoraConfig(init_lora_weights=False, **TARGETS)
        return peft.get_peft_model(build_without_dropout("Llama"), config)

    settings = {"learning_rate": 1.0, "beta": beta}
    trl_trainer = train(ScriptedGrpoTrainer, build_peft_model(), **TRL_SETTINGS, **settings)
    rapid_trainer = train(ScriptedTrainer, build_peft_model(), **RAPID_SETTINGS, **settings)
    start = get_trained_weights(build_peft_model())
    step = get_trained_weights(trl_trainer.model) - start
    assert step.abs().max() > 1e-3
    torch.testing.assert_close(
        get_trained_weights(rapid_trainer.model) - start, step, rtol=1e-3, atol=1e-5
    )
    assert not beta or logged_values(rapid_trainer, "kl")[0] < 1e-9


@pytest.mark.parametrize("kind", ["LilyConfig", "PveraConfig"])
def test_adapters_that_depend_on_later_tokens_are_refused(kind, train):
    arguments = {"peft_config": getattr(peft, kind)(**TARGETS)}
    with pytest.raises(ValueError, match="depends on more than the tokens before it"):
        train(RapidTrainer, build_untrained("Llama"), arguments=arguments)
    model = peft.get_peft_model(build_untrained("Llama"), arguments["peft_config"])
    with pytest.raises(ValueError, match="choose another"):
        train(RapidTrainer, model)


def fail_to_grade(*_, **__):
    raise AssertionError("completions were sampled and graded")


@pytest.mark.parametrize(
    ("tied", "tokens"), [(True, [5, 6]), (False, {"embed_tokens": [5, 6], "lm_head": [5, 6]})]
)
def test_adapters_of_tokens_of_the_output_layer_are_refused(tied, tokens, toy_model, train):
    model = AutoModelForCausalLM.from_pretrained(toy_model, tie_word_embeddings=tied)
    adapter = peft.LoraConfig(trainable_token_indices=tokens, **TARGETS)
    with pytest.raises(ValueError, match="trainable_token_indices trains tokens of the output"):
        train(RapidTrainer, model, fail_to_grade, {"peft_config": adapter}, H=1, **SIZES)


def test_adapters_of_tokens_of_untied_input_embeddings_are_trained(toy_model, train):
    model = AutoModelForCausalLM.from_pretrained(toy_model, tie_word_embeddings=False)
    adapter = peft.LoraConfig(trainable_token_indices=[*range(2, 258)], **TARGETS)
    arguments = {"peft_config": adapter}
    trainer = train(RapidTrainer, model, arguments=arguments, learning_rate=0.05, H=1, **SIZES)
    layer = trainer.model.get_input_embeddings().token_adapter
    tokens = layer.trainable_tokens_delta["default"]
    assert not torch.equal(tokens, layer.trainable_tokens_original["default"])
