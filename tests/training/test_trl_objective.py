"""Objective "trl" has the gradient, loss and metrics of stock TRL with micro-batches of any size.

TRL takes log-probabilities in float32 even of a float64 model: gradients agree to its rounding.
"""

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig

from rapid import RapidConfig
from tests.training.conformance.families import build_untrained
from tests.training.loops import (
    COMMON,
    ScriptedGrpoTrainer,
    ScriptedTrainer,
    make_trainer,
    partial_reward,
)

GROUP_SIZE, N_STEP, H = 4, 16, 2
ROUNDING = 2e-6  # relative to the largest entry of the gradient
LOSSES = {
    "grpo": {"loss_type": "grpo", "beta": 0.1, "delta": 1.3},
    "bnpo": {"loss_type": "bnpo", "entropy_coef": 0.1, "scale_rewards": "batch"},
    "dr_grpo": {"loss_type": "dr_grpo", "importance_sampling_level": "sequence"},
    "dapo": {"epsilon_high": 0.28, "beta": 0.1, "entropy_coef": 0.1, "use_adaptive_entropy": True},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.1, "off_policy_mask_threshold": 0.05},
    "sapo": {"loss_type": "sapo", "beta": 0.1, "use_bias_correction_kl": False},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    "vespo": {"loss_type": "vespo", "multi_objective_aggregation": "normalize_then_sum"},
    # As if vLLM had sampled, whose log-probabilities differ slightly from the policy's.
    "vllm": {"use_vllm": True, "vllm_importance_sampling_clip_max": 1.1},
    "vllm-tokens": {
        "use_vllm": True,
        "vllm_importance_sampling_mode": "token_truncate",
        "loss_type": "vespo",
    },
}
# Losses that TRL computes per micro-batch: gradients are equal if the micro-batches are.
PER_MICRO_BATCH_LOSSES = {
    "grpo-entropy": {"loss_type": "grpo", "entropy_coef": 0.1},
    "dapo-quantile": {"top_entropy_quantile": 0.5},
}
PROMPTS = Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(3)])
MICRO_BATCHES = {
    "one": {"micro_batch_size": N_STEP, "pack": False},
    "several": {"micro_batch_size": GROUP_SIZE, "token_budget": 150},
}


@pytest.fixture(autouse=True)
def disable_shuffle(monkeypatch):
    """Disable TRL's shuffle, which splits groups, so that its mini-batches are RAPID's."""
    monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda batch: batch)


def build_stock_trainer(model, folder, **settings) -> ScriptedGrpoTrainer:
    sizes = {"per_device_train_batch_size": N_STEP, "steps_per_generation": H}
    trainer = build_trainer(ScriptedGrpoTrainer, GRPOConfig, folder, model, sizes | settings)
    trainer.current_gradient_accumulation_steps = 1  # as `train` sets it
    return trainer


def build_trl_objective_trainer(model, folder, **settings) -> ScriptedTrainer:
    # Scripted completions are not sampled from the policy.
    sizes = {"objective": "trl", "H": H, "n_step": N_STEP, "max_sampler_mismatch": 1e9}
    return build_trainer(ScriptedTrainer, RapidConfig, folder, model, sizes | settings)


def build_trainer(trainer_class, config_class, folder, model, settings):
    settings = COMMON | {"max_completion_length": 8} | settings
    use_vllm = settings.pop("use_vllm", False)
    trainer = make_trainer(
        trainer_class, config_class(str(folder), **settings), model, partial_reward
    )
    trainer.use_vllm = use_vllm
    return trainer


def compute_gradients(trainer) -> list[torch.Tensor]:
    """Return the gradient of each step on an inference batch, and move the weights between."""
    model, gradients = trainer.model, []
    prompts = [row for row in trainer.train_dataset.select(range(8)) for _ in range(GROUP_SIZE)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(H):
        model.zero_grad()
        trainer.training_step(model, prompts, None)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn(parameter.shape, generator=generator).to(parameter)
                parameter += 0.02 * noise
    return gradients


def assert_same(gradients, expected):
    for gradient, expected_gradient in zip(gradients, expected, strict=True):
        assert expected_gradient.abs().max() > 1e-3
        bound = ROUNDING * expected_gradient.abs().max().item()
        torch.testing.assert_close(
            gradient.double(), expected_gradient.double(), rtol=0, atol=bound
        )


@pytest.fixture(scope="module")
def stock_results(toy_model, tmp_path_factory):
    """A function that returns the gradients and metrics of stock TRL with some settings."""
    results_by_name = {}

    def get_results(name: str, settings: dict):
        if name not in results_by_name:
            trainer = build_stock_trainer(toy_model, tmp_path_factory.mktemp("stock"), **settings)
            results_by_name[name] = compute_gradients(trainer), trainer._metrics["train"]
        return results_by_name[name]

    return get_results


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_match_stock_trl(toy_model, tmp_path, stock_results, monkeypatch, loss):
    """On-policy and off-policy, with ungraded completions and mini-batches of unequal length."""
    expected, _ = stock_results(loss, LOSSES[loss])
    trainer = build_trl_objective_trainer(
        toy_model, tmp_path, **LOSSES[loss] | MICRO_BATCHES["several"]
    )
    calls, compute_loss = [], trainer.compute_loss
    monkeypatch.setattr(
        trainer, "compute_loss", lambda *args: calls.append(1) or compute_loss(*args)
    )
    assert_same(compute_gradients(trainer), expected)
    assert len(calls) > H
    if "vllm" in loss:  # above clip_max whole completions are masked, or tokens are truncated
        (share,) = trainer._metrics["train"]["sampling/importance_sampling_ratio/masked"]
        assert 0 < share < 1 if loss == "vllm" else share == 0


@pytest.mark.parametrize("loss", PER_MICRO_BATCH_LOSSES)
def test_losses_per_micro_batch_match_stock_trl(toy_model, tmp_path, stock_results, loss):
    expected, _ = stock_results(loss, PER_MICRO_BATCH_LOSSES[loss])
    trainer = build_trl_objective_trainer(
        toy_model, tmp_path, **PER_MICRO_BATCH_LOSSES[loss] | MICRO_BATCHES["one"]
    )
    assert_same(compute_gradients(trainer), expected)
    assert trainer.last_pass[0] == 1  # the step in progress


def test_experts_are_balanced_like_trl(toy_model, tmp_path, monkeypatch):
    """The weight of the balancing loss is in the model's configuration."""
    monkeypatch.setattr(
        "tests.training.loops.AutoModelForCausalLM.from_pretrained",
        lambda *_, **__: build_untrained("Qwen3Moe"),
    )
    expected = compute_gradients(trl_trainer := build_stock_trainer(toy_model, tmp_path))
    trainer = build_trl_objective_trainer(toy_model, tmp_path, **MICRO_BATCHES["one"])
    gradients = compute_gradients(trainer)
    for gradient, expected_gradient in zip(gradients, expected, strict=True):
        # The model is float32, and TRL computes positions and sums differently.
        bound = 1e-4 * expected_gradient.abs().max().item()
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=bound)
    balance = trainer._metrics["train"]["aux_loss"]
    assert balance == pytest.approx(trl_trainer._metrics["train"]["aux_loss"], rel=1e-5)
    assert min(balance) > 1


def test_metrics_match_trl(toy_model, tmp_path, stock_results):
    _, expected = stock_results("dapo", LOSSES["dapo"])
    trainer = build_trl_objective_trainer(
        toy_model, tmp_path, **LOSSES["dapo"] | MICRO_BATCHES["one"]
    )
    compute_gradients(trainer)
    metrics = trainer._metrics["train"]
    assert {*metrics} >= {*expected}
    assert {"kl", "policy_loss", "entropy_coef", "clip_ratio/low_min"} <= {*expected}
    for name, values in expected.items():
        if name != "step_time":
            assert metrics[name] == pytest.approx(values, rel=1e-4, abs=1e-6), name
    assert metrics["rapid/run"] == [1, 1]


def test_adaptive_entropy_coefficient_uses_all_micro_batches(toy_model, tmp_path, stock_results):
    _, expected = stock_results("dapo", LOSSES["dapo"])
    trainer = build_trl_objective_trainer(
        toy_model, tmp_path, **LOSSES["dapo"] | MICRO_BATCHES["several"]
    )
    compute_gradients(trainer)
    assert trainer._metrics["train"]["entropy_coef"] == expected["entropy_coef"]
    assert expected["entropy_coef"][0] != 0.1


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_evaluation_matches_trl(toy_model, tmp_path, loss):
    metrics, expected = (
        build_any_trainer(
            toy_model, tmp_path, per_device_eval_batch_size=8, **LOSSES[loss]
        ).evaluate(PROMPTS)
        for build_any_trainer in (build_trl_objective_trainer, build_stock_trainer)
    )
    assert expected["eval_loss"] != 0
    for name, value in expected.items():
        if "runtime" not in name and "per_second" not in name:
            assert metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_correction_of_vllm_logps_respects_micro_batch_size(toy_model, tmp_path):
    trainer = build_trl_objective_trainer(
        toy_model, tmp_path, use_vllm=True, micro_batch_size=GROUP_SIZE, pack=False
    )
    row_counts = []
    trainer.model.register_forward_pre_hook(
        lambda model, _, kwargs: row_counts.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    compute_gradients(trainer)
    assert max(row_counts) == GROUP_SIZE
