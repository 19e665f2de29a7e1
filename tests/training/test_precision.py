"""What log mu is where the sampler's is not exact, and rewards that are not all known."""

import math
from types import SimpleNamespace

import pytest
import torch

from rapid import RapidTrainer
from rapid.training import forward
from rapid.training.caches import prefill_prompts
from tests.training.loops import (
    ROUNDING,
    ScriptedTrainer,
    assert_same_learning,
    build_rapid_trainer,
    get_initial_weights,
    get_weights,
    logged_values,
    train_rapid,
)

STEPS = {"H": 2, "max_steps": 4}


class Unknown(ScriptedTrainer):
    """Its sampler does not know the probability of the first token that it sampled."""

    def _generate_single_turn(self, *args):
        completions, _ = super()._generate_single_turn(*args)
        return completions, [[math.nan] + [-1.0] * (len(ids) - 1) for ids in completions]


def test_in_bfloat16_log_mu_is_found_again(toy_model, tmp_path):
    """The sampler rounds otherwise than a pass does: of an unchanged policy weights are 1."""
    unchanged = {"dtype": torch.bfloat16, "learning_rate": 0.0} | STEPS
    trainer = train_rapid(toy_model, tmp_path, "rapid", **unchanged)
    assert not trainer.use_sampler_logps()
    assert max(logged_values(trainer, "rapid/staleness")) < ROUNDING
    assert logged_values(trainer, "rapid/weight") == pytest.approx([1] * 4, abs=ROUNDING)


def test_a_sampler_in_bfloat16_may_be_trusted(toy_model, tmp_path):
    """Its log-probabilities are mu then, of which an unchanged policy is off by rounding."""
    unchanged = {"dtype": torch.bfloat16, "learning_rate": 0.0, "trust_sampler": True} | STEPS
    trainer = train_rapid(toy_model, tmp_path, "rapid", **unchanged)
    late = trainer.last_pass[1]
    assert torch.equal(late["behavior_logp"], late["sampler_logp"])
    # Of 6 tokens at most, whose logits below 8 are rounded by 2**-6.
    assert max(logged_values(trainer, "rapid/staleness")) < 6 * 2.0**-5
    asked = train_rapid(toy_model, tmp_path, "rapid", **unchanged, reuse_logp=False)
    assert "sampler_logp" not in asked.last_pass[1]


@pytest.mark.parametrize(
    ("model", "engine", "given", "tells"),
    [
        (torch.float32, None, {}, True),
        (torch.float32, torch.float32, {}, True),
        (torch.float64, torch.float32, {}, True),
        (torch.float32, torch.bfloat16, {}, False),
        (torch.bfloat16, torch.float32, {}, False),
        (torch.float32, None, {"bf16": True}, False),
        (torch.float32, None, {"fp16": True}, False),
        (torch.float32, None, {"fp16": True, "trust_sampler": True}, True),
        (torch.float32, None, {"trust_sampler": True, "reuse_logp": False}, False),
    ],
)
def test_a_sampler_tells_mu_where_it_and_the_policy_are_exact_or_it_is_trusted(
    model, engine, given, tells
):
    args = {"bf16": False, "fp16": False, "reuse_logp": True, "trust_sampler": False} | given
    config = SimpleNamespace(dtype=engine)
    llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=config))
    trainer = SimpleNamespace(
        model=SimpleNamespace(dtype=model),
        args=SimpleNamespace(**args),
        use_vllm=engine is not None,
        vllm_generation=SimpleNamespace(mode="colocate", llm=llm),
    )
    assert RapidTrainer.use_sampler_logps(trainer) is tells


@pytest.mark.parametrize("cast", [True, False])
def test_prompts_are_not_shared_with_a_head_in_float32(toy_model, tmp_path, monkeypatch, cast):
    """Only TRL's patched forward heeds it."""
    shared = []
    monkeypatch.setattr(
        forward, "prefill_prompts", lambda *a: shared.append(a) or prefill_prompts(*a)
    )
    settings = {"dtype": torch.bfloat16, "trainer": ScriptedTrainer} | STEPS
    train_rapid(toy_model, tmp_path, "rapid", cast_lm_head_to_fp32=cast, **settings)
    assert bool(shared) is not cast


def test_a_log_mu_that_is_not_known_is_found_again(toy_model, tmp_path):
    unknown = train_rapid(toy_model, tmp_path, "rapid", trainer_class=Unknown, **STEPS)
    assert unknown.last_pass[1]["sampler_logp"].isnan().any()
    unsaid = train_rapid(toy_model, tmp_path, "rapid", trainer_class=ScriptedTrainer, **STEPS)
    assert_same_learning(get_weights(unknown), get_weights(unsaid), get_initial_weights(toy_model))


def test_a_step_without_a_pass_can_be_the_first_in_float16(toy_model, tmp_path):
    """A gradient scaler knows its scale from a backward pass."""
    trainer = build_rapid_trainer(
        toy_model, tmp_path, "rapid", lambda prompts, **_: [0.0] * len(prompts), **STEPS
    )
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
    trainer.accelerator.state._mixed_precision = "fp16"
    trainer.train()
    assert trainer.state.global_step == STEPS["max_steps"]
