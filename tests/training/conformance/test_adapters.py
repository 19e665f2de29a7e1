"""Adapters of every kind: importance weights of 1 where nothing moves, and the gradient of TRL."""

import peft
import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl.trainer.utils import add_fused_lm_head

from rapid import RapidTrainer
from rapid.training.forward import completion_logp
from tests.training.conformance.adapters import FAMILY, KINDS, TARGETS, config_of
from tests.training.conformance.families import untrained
from tests.training.conformance.test_families import one_by_one, quiet
from tests.training.conftest import GROUP
from tests.training.loops import ScriptedGrpo, ScriptedTrainer, logged

QUICK = ("adaption", "alora", "lora", "prefix")
EACH = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
SIZES = {"n_step": 16, "micro_batch_size": 8}
OURS = {"objective": "grpo", "H": 1, **SIZES}
THEIRS = {"loss_type": "grpo", "per_device_train_batch_size": 16, "use_bias_correction_kl": False}


class Moved(TrainerCallback):
    """Begin with an adapter that does something, the same each time; most start as nothing."""

    def on_train_begin(self, args, state, control, model=None, **_):
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for _, parameter in sorted(model.named_parameters()):
                if parameter.requires_grad:
                    parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        self.start = learned(model)


def learned(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters() if p.requires_grad])


def arguments(kind, toy_model, moved) -> dict:
    return {"peft_config": config_of(kind, toy_model), "callbacks": [moved]}


@pytest.mark.parametrize("kind", EACH)
def test_log_pi_is_log_mu_while_an_adapter_stays_as_it_is(kind, toy_model, train):
    model, given = untrained(FAMILY.get(kind, "Llama")), arguments(kind, toy_model, Moved())
    settings = SIZES | {"H": 2, "max_steps": 2, "learning_rate": 0.0}
    trainer = train(RapidTrainer, model, arguments=given, **settings)
    assert logged(trainer, "rapid/weight") == pytest.approx([1, 1], abs=2e-5)
    assert all(off < 2e-6 for off in logged(trainer, "rapid/sampler_mismatch"))


@pytest.mark.parametrize("kind", EACH)
def test_the_gradient_of_grpo_is_trls_and_the_reference_has_no_adapter(kind, toy_model, train):
    plain = {"learning_rate": 1.0, "beta": 0.5}  # the step of SGD is the gradient
    if family := FAMILY.get(kind):
        plain["router_aux_loss_coef"] = 0.0
    runs, moved = [], Moved()
    for trainer, settings in ((ScriptedGrpo, THEIRS), (ScriptedTrainer, OURS)):
        if kind == "adaption" and trainer is ScriptedGrpo:
            continue  # TRL's stops: the adapter keeps the forward from before TRL's
        model = quiet(family or "Llama")
        given = arguments(kind, toy_model, moved)
        runs.append(train(trainer, model, arguments=given, **plain, **settings))
    assert logged(runs[-1], "kl")[0] > 1e-8  # the policy is not the reference
    steps = [learned(run.model) - moved.start for run in runs]
    assert steps[-1].abs().max() > 1e-4
    torch.testing.assert_close(
        steps[0], steps[-1], rtol=1e-3, atol=1e-4 * float(steps[0].abs().max())
    )
    assert logged(runs[0], "kl") == pytest.approx(logged(runs[-1], "kl"), rel=1e-3, abs=1e-9)


UNPADDED = ("adaption", "p", "prefix", "prompt")


@pytest.mark.parametrize("kind", UNPADDED)
def test_virtual_tokens_do_not_see_the_padding_of_shorter_prompts(kind, toy_model, micro_batch):
    model = peft.get_peft_model(quiet("Llama"), config_of(kind, toy_model))
    Moved().on_train_begin(None, None, None, model)
    add_fused_lm_head(model.get_base_model(), temperature=1.0)
    if kind == "adaption":
        model.base_model.forward = model.get_base_model().forward
    found, _ = completion_logp(model, micro_batch, GROUP, 1.0, True)
    found = found * micro_batch["completion_mask"]
    torch.testing.assert_close(found, one_by_one(model, micro_batch), rtol=0, atol=2e-5)


def test_virtual_tokens_are_sampled_from_without_padding(toy_model, train):
    rows = Dataset.from_list([{"prompt": "long " * (number % 3) + "prompt"} for number in range(8)])
    given = arguments("prefix", toy_model, Moved()) | {"train_dataset": rows}
    padded = []

    class Watched(RapidTrainer):
        def _decoding(self, start):
            padded.append(start)
            return super()._decoding(start)

    train(Watched, untrained("Llama"), arguments=given, H=1, **SIZES)
    assert len(padded) > 1  # lengths differ between neighbours, in any order of the four prompts


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_an_adapter_that_was_trained_before_is_its_own_reference(beta, train):
    def build():
        torch.manual_seed(1)
        given = peft.LoraConfig(init_lora_weights=False, **TARGETS)
        return peft.get_peft_model(quiet("Llama"), given)

    plain = {"learning_rate": 1.0, "beta": beta}
    theirs = train(ScriptedGrpo, build(), **THEIRS, **plain)
    ours = train(ScriptedTrainer, build(), **OURS, **plain)
    start = learned(build())
    step = learned(theirs.model) - start
    assert step.abs().max() > 1e-3
    torch.testing.assert_close(learned(ours.model) - start, step, rtol=1e-3, atol=1e-5)
    assert not beta or logged(ours, "kl")[0] < 1e-9


@pytest.mark.parametrize("kind", ["LilyConfig", "PveraConfig"])
def test_adapters_with_which_no_token_has_a_probability_are_refused(kind, train):
    given = {"peft_config": getattr(peft, kind)(**TARGETS)}
    with pytest.raises(ValueError, match="depends on more than the tokens before it"):
        train(RapidTrainer, untrained("Llama"), arguments=given)
    model = peft.get_peft_model(untrained("Llama"), given["peft_config"])
    with pytest.raises(ValueError, match="choose another"):
        train(RapidTrainer, model)
