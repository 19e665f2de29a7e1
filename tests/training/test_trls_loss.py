"""Objective "trl" against stock TRL: the same gradient, loss and metrics, however passes are cut.

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
ROUNDING = 2e-6  # of the largest entry of the gradient
LOSSES = {
    "grpo": {"loss_type": "grpo", "beta": 0.1, "delta": 1.3},
    "bnpo": {"loss_type": "bnpo", "entropy_coef": 0.1, "scale_rewards": "batch"},
    "dr_grpo": {"loss_type": "dr_grpo", "importance_sampling_level": "sequence"},
    "dapo": {"epsilon_high": 0.28, "beta": 0.1, "entropy_coef": 0.1, "use_adaptive_entropy": True},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.1, "off_policy_mask_threshold": 0.05},
    "sapo": {"loss_type": "sapo", "beta": 0.1, "use_bias_correction_kl": False},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    "vespo": {"loss_type": "vespo", "multi_objective_aggregation": "normalize_then_sum"},
    # As if vLLM had sampled, whose log-probabilities are not quite the policy's.
    "vllm": {"use_vllm": True, "vllm_importance_sampling_clip_max": 1.1},
    "vllm-tokens": {
        "use_vllm": True,
        "vllm_importance_sampling_mode": "token_truncate",
        "loss_type": "vespo",
    },
}
# What TRL takes of each pass by itself: the same gradient where the pass is the same.
OF_A_PASS = {
    "grpo-entropy": {"loss_type": "grpo", "entropy_coef": 0.1},
    "dapo-quantile": {"top_entropy_quantile": 0.5},
}
PROMPTS = Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(3)])
PASSES = {
    "one": {"micro_batch_size": N_STEP, "pack": False},
    "several": {"micro_batch_size": GROUP_SIZE, "token_budget": 150},
}


@pytest.fixture(autouse=True)
def in_order(monkeypatch):
    """Without the shuffle with which TRL tears groups apart, its mini-batches are ours."""
    monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda batch: batch)


def stock(model, folder, **settings) -> ScriptedGrpoTrainer:
    sizes = {"per_device_train_batch_size": N_STEP, "steps_per_generation": H}
    trainer = built(ScriptedGrpoTrainer, GRPOConfig, folder, model, sizes | settings)
    trainer.current_gradient_accumulation_steps = 1  # as `train` sets it
    return trainer


def ours(model, folder, **settings) -> ScriptedTrainer:
    # What the script samples is not the policy's.
    sizes = {"objective": "trl", "H": H, "n_step": N_STEP, "max_sampler_mismatch": 1e9}
    return built(ScriptedTrainer, RapidConfig, folder, model, sizes | settings)


def built(kind, config, folder, model, settings):
    settings = COMMON | {"max_completion_length": 8} | settings
    use_vllm = settings.pop("use_vllm", False)
    trainer = make_trainer(kind, config(str(folder), **settings), model, partial_reward)
    trainer.use_vllm = use_vllm
    return trainer


def gradients(trainer) -> list[torch.Tensor]:
    """Return the gradient of each step on an inference batch, and move the weights between."""
    model, found = trainer.model, []
    prompts = [row for row in trainer.train_dataset.select(range(8)) for _ in range(GROUP_SIZE)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(H):
        model.zero_grad()
        trainer.training_step(model, prompts, None)
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn(parameter.shape, generator=generator).to(parameter)
                parameter += 0.02 * noise
    return found


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert other.abs().max() > 1e-3
        bound = ROUNDING * other.abs().max().item()
        torch.testing.assert_close(one.double(), other.double(), rtol=0, atol=bound)


@pytest.fixture(scope="module")
def of_stock(toy_model, tmp_path_factory):
    """The gradients and metrics of stock TRL with these settings."""
    known = {}

    def of(name: str, settings: dict):
        if name not in known:
            trainer = stock(toy_model, tmp_path_factory.mktemp("stock"), **settings)
            known[name] = gradients(trainer), trainer._metrics["train"]
        return known[name]

    return of


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_those_of_stock_trl(toy_model, tmp_path, of_stock, monkeypatch, loss):
    """On-policy and off-policy, some completions not graded, mini-batches of unequal length."""
    expected, _ = of_stock(loss, LOSSES[loss])
    trainer = ours(toy_model, tmp_path, **LOSSES[loss] | PASSES["several"])
    passes, loss_of = [], trainer.compute_loss
    monkeypatch.setattr(trainer, "compute_loss", lambda *a: passes.append(1) or loss_of(*a))
    assert_same(gradients(trainer), expected)
    assert len(passes) > H
    if "vllm" in loss:  # above clip_max whole completions are masked, or tokens are truncated
        (share,) = trainer._metrics["train"]["sampling/importance_sampling_ratio/masked"]
        assert 0 < share < 1 if loss == "vllm" else share == 0


@pytest.mark.parametrize("loss", OF_A_PASS)
def test_what_trl_takes_of_a_pass_is_taken_of_ours(toy_model, tmp_path, of_stock, loss):
    expected, _ = of_stock(loss, OF_A_PASS[loss])
    trainer = ours(toy_model, tmp_path, **OF_A_PASS[loss] | PASSES["one"])
    assert_same(gradients(trainer), expected)
    assert trainer.last_pass[0] == 1  # of the step that is under way


def test_experts_are_balanced_as_in_trl(toy_model, tmp_path, monkeypatch):
    """Of a model whose own configuration has a weight for that."""
    monkeypatch.setattr(
        "tests.training.loops.AutoModelForCausalLM.from_pretrained",
        lambda *_, **__: build_untrained("Qwen3Moe"),
    )
    expected = gradients(theirs := stock(toy_model, tmp_path))
    mine = ours(toy_model, tmp_path, **PASSES["one"])
    found = gradients(mine)
    for one, other in zip(found, expected, strict=True):
        bound = 1e-4 * other.abs().max().item()  # float32: positions and sums are TRL's own
        torch.testing.assert_close(one, other, rtol=0, atol=bound)
    balance = mine._metrics["train"]["aux_loss"]
    assert balance == pytest.approx(theirs._metrics["train"]["aux_loss"], rel=1e-5)
    assert min(balance) > 1


def test_metrics_are_trls(toy_model, tmp_path, of_stock):
    _, expected = of_stock("dapo", LOSSES["dapo"])
    trainer = ours(toy_model, tmp_path, **LOSSES["dapo"] | PASSES["one"])
    gradients(trainer)
    found = trainer._metrics["train"]
    assert {*found} >= {*expected}
    assert {"kl", "policy_loss", "entropy_coef", "clip_ratio/low_min"} <= {*expected}
    for name, values in expected.items():
        if name != "step_time":
            assert found[name] == pytest.approx(values, rel=1e-4, abs=1e-6), name
    assert found["rapid/run"] == [1, 1]


def test_the_entropy_of_all_passes_decides_the_next_coefficient(toy_model, tmp_path, of_stock):
    _, expected = of_stock("dapo", LOSSES["dapo"])
    trainer = ours(toy_model, tmp_path, **LOSSES["dapo"] | PASSES["several"])
    gradients(trainer)
    assert trainer._metrics["train"]["entropy_coef"] == expected["entropy_coef"]
    assert expected["entropy_coef"][0] != 0.1


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_evaluation_is_trls(toy_model, tmp_path, loss):
    found, expected = (
        build(toy_model, tmp_path, per_device_eval_batch_size=8, **LOSSES[loss]).evaluate(PROMPTS)
        for build in (ours, stock)
    )
    assert expected["eval_loss"] != 0
    for name, value in expected.items():
        if "runtime" not in name and "per_second" not in name:
            assert found[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_no_pass_that_corrects_vllms_is_larger_than_others(toy_model, tmp_path):
    trainer = ours(toy_model, tmp_path, use_vllm=True, micro_batch_size=GROUP_SIZE, pack=False)
    rows = []
    trainer.model.register_forward_pre_hook(
        lambda model, _, given: rows.append(len(given["input_ids"])), with_kwargs=True
    )
    gradients(trainer)
    assert max(rows) == GROUP_SIZE
