"""The precision of passes; log mu where the sampler's log-probabilities are inexact or missing."""

import math
from types import SimpleNamespace

import pytest
import torch

from rapid import RapidConfig, RapidTrainer
from rapid.training import forward, precision, sampler_check
from rapid.training.caches import prefill_prompts
from tests.training.loops import (
    ROUNDING,
    ScriptedTrainer,
    assert_same_training,
    build_rapid_trainer,
    logged_values,
    train_rapid,
)

STEPS = {"H": 2, "max_steps": 4}


class UnknownLogpTrainer(ScriptedTrainer):
    """Its sampler has no log-probability for the first token."""

    def _generate_single_turn(self, *args):
        completions, _ = super()._generate_single_turn(*args)
        return completions, [[math.nan] + [-1.0] * (len(ids) - 1) for ids in completions]


def test_log_mu_is_recomputed_if_sampler_is_not_trusted(toy_model, tmp_path):
    """Although the sampler rounds differently, weights are 1 with a learning rate of 0."""
    unchanged = {"dtype": torch.bfloat16, "learning_rate": 0.0, "trust_sampler": False} | STEPS
    trainer = train_rapid(toy_model, tmp_path, "rapid", **unchanged)
    assert not trainer.uses_sampler_logps()
    assert max(logged_values(trainer, "rapid/staleness")) < ROUNDING
    assert logged_values(trainer, "rapid/weight") == pytest.approx([1] * 4, abs=ROUNDING)


def test_trusted_bfloat16_sampler_provides_log_mu(toy_model, tmp_path):
    """Its log-probabilities are mu, and an unchanged policy differs from them by rounding."""
    unchanged = {"dtype": torch.bfloat16, "learning_rate": 0.0, "trust_sampler": True} | STEPS
    trainer = train_rapid(toy_model, tmp_path, "rapid", **unchanged)
    micro_batch = trainer.last_pass[1]
    assert torch.equal(micro_batch["behavior_logp"], micro_batch["sampler_logp"])
    # Up to 6 tokens, whose logits below 8 are rounded by 2**-6.
    assert max(logged_values(trainer, "rapid/staleness")) < 6 * 2.0**-5
    not_reusing = train_rapid(toy_model, tmp_path, "rapid", **unchanged, reuse_logp=False)
    assert "sampler_logp" not in not_reusing.last_pass[1]


@pytest.mark.parametrize(("bound", "is_exact"), [(1.0, True), (-1.0, False)])
def test_sampler_is_trusted_if_its_weights_are_exact_enough(
    toy_model, tmp_path, monkeypatch, bound, is_exact
):
    """Rounding to bfloat16 changes the log-probability of six tokens by less than 1."""
    monkeypatch.setattr(sampler_check, "WEIGHT_ERROR_BOUND", bound)
    trainer = train_rapid(toy_model, tmp_path, "rapid", dtype=torch.bfloat16, **STEPS)
    assert trainer.uses_sampler_logps() is is_exact
    micro_batch = trainer.last_pass[1]
    uses_sampler = torch.equal(
        micro_batch["behavior_logp"], micro_batch.get("sampler_logp", torch.zeros(0))
    )
    assert uses_sampler is is_exact


def test_resumed_run_keeps_its_source_of_log_mu(toy_model, tmp_path, monkeypatch):
    """The first run finds errors above the bound; the resumed run would find none."""
    settings = {"dtype": torch.bfloat16, "save_strategy": "steps", "save_steps": 2} | STEPS
    with monkeypatch.context() as patched:
        patched.setattr(sampler_check, "WEIGHT_ERROR_BOUND", -1.0)
        trainer = train_rapid(toy_model, tmp_path, "rapid", **settings | {"max_steps": 2})
        assert not trainer.uses_sampler_logps()
    trainer = build_rapid_trainer(toy_model, tmp_path, "rapid", **settings)
    trainer.train(str(tmp_path / "checkpoint-2"))
    assert not trainer.uses_sampler_logps()


@pytest.mark.parametrize(
    ("model", "engine", "settings", "uses_sampler_logps"),
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
        (torch.float32, None, {"bf16": True, "trust_sampler": None, "is_exact": None}, True),
        (torch.float32, None, {"bf16": True, "trust_sampler": None, "is_exact": True}, True),
        (torch.float32, None, {"bf16": True, "trust_sampler": None, "is_exact": False}, False),
        (torch.float32, None, {"trust_sampler": None, "is_exact": False}, True),
    ],
)
def test_sampler_logps_are_used_if_exact_or_trusted(model, engine, settings, uses_sampler_logps):
    args = {"bf16": False, "fp16": False, "reuse_logp": True, "trust_sampler": False} | settings
    config = SimpleNamespace(dtype=engine)
    llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=config))
    trainer = SimpleNamespace(
        model=SimpleNamespace(dtype=model),
        args=SimpleNamespace(**args),
        _sampler_check=SimpleNamespace(is_exact=settings.get("is_exact")),
        use_vllm=engine is not None,
        vllm_generation=SimpleNamespace(mode="colocate", llm=llm),
    )
    assert RapidTrainer.uses_sampler_logps(trainer) is uses_sampler_logps


@pytest.mark.parametrize("cast", [True, False])
def test_prompts_are_not_shared_with_float32_head(toy_model, tmp_path, monkeypatch, cast):
    """Only TRL's patched forward method applies this cast."""
    prefill_calls = []
    monkeypatch.setattr(
        forward,
        "prefill_prompts",
        lambda *args: prefill_calls.append(args) or prefill_prompts(*args),
    )
    settings = {"dtype": torch.bfloat16, "trainer_class": ScriptedTrainer} | STEPS
    train_rapid(toy_model, tmp_path, "rapid", cast_lm_head_to_fp32=cast, **settings)
    assert bool(prefill_calls) is not cast


def test_unknown_log_mu_is_recomputed(toy_model, tmp_path):
    with_unknown = train_rapid(
        toy_model, tmp_path, "rapid", trainer_class=UnknownLogpTrainer, **STEPS
    )
    assert with_unknown.last_pass[1]["sampler_logp"].isnan().any()
    without_logps = train_rapid(
        toy_model, tmp_path, "rapid", trainer_class=ScriptedTrainer, **STEPS
    )
    assert_same_training(with_unknown, without_logps, toy_model)


def test_first_float16_step_may_have_no_micro_batch(toy_model, tmp_path):
    """A gradient scaler initializes its scale in a backward pass."""
    trainer = build_rapid_trainer(
        toy_model, tmp_path, "rapid", lambda prompts, **_: [0.0] * len(prompts), **STEPS
    )
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu")
    trainer.accelerator.state._mixed_precision = "fp16"
    trainer.train()
    assert trainer.state.global_step == STEPS["max_steps"]


# The precision of passes --------------------------------------------------------------------------


@pytest.mark.parametrize(("gain", "fastest"), [(1.2, "bfloat16"), (1.05, "float32")])
def test_precision_is_the_one_that_is_faster_by_a_tenth(monkeypatch, tmp_path, gain, fastest):
    rates = precision.Rates(float32=1e9, bfloat16=gain * 1e9)
    monkeypatch.setattr(precision, "measure_rates", lambda device: rates)
    config = RapidConfig(str(tmp_path), precision="auto", use_cpu=True)
    assert (config.precision, config.bf16) == (fastest, fastest == "bfloat16")
    assert config.origins["precision"] == f"measured: {gain:.0f} GFLOP/s in bfloat16, 1 in float32"


def test_rates_are_measured_without_drawing_random_numbers():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    rates = precision.measure_rates()
    assert min(rates) > 0
    assert torch.equal(torch.get_rng_state(), before)


def test_choice_of_a_run_is_kept(monkeypatch, tmp_path):
    file = tmp_path / "checkpoints" / "precision"
    measured = []
    monkeypatch.setattr(
        precision,
        "measure_rates",
        lambda device: measured.append(device) or precision.Rates(1e9, (2 - len(measured)) * 3e9),
    )
    assert [precision.choose_precision(file) for _ in range(2)] == ["bfloat16"] * 2
    assert measured == ["cpu"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "float16"}, "precision='float16': Input should be 'float32', 'bf"),
        ({"precision": "float32", "bf16": True}, "precision='float32', bf16=True"),
        ({"precision": "bfloat16", "fp16": True}, "precision='bfloat16', bf16=None, fp16=True"),
    ],
)
def test_contradicting_precisions_are_refused(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        RapidConfig(str(tmp_path), use_cpu=True, **settings)
