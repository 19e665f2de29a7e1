"""Algorithms have the loss and the gradient of stock TRL on the same batch.

TRL computes log-probabilities in float32, even of a float64 model. So gradients of whole steps
agree up to float32's rounding (FLOAT32_TOLERANCE). Losses of fixed log-probabilities agree up to
float64's.
"""

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from rapid import RapidConfig
from rapid.algorithms.base import LossInputs
from tests.training.loops import (
    COMMON,
    ROUNDING,
    GradientRecorder,
    RecordingTrainer,
    ScriptedGrpoTrainer,
    logged_values,
    make_trainer,
)

GROUP_SIZE, PROMPTS, MAX_LENGTH = 4, 16, 8
SHARED = COMMON | {"learning_rate": 1.0, "max_completion_length": MAX_LENGTH}
FLOAT32_TOLERANCE = ROUNDING  # relative to the gradient's norm
# TRL's settings for each algorithm, and RAPID's where they are not the defaults.
TRL_SETTINGS = {
    "pg": {"loss_type": "luspo", "importance_sampling_level": "sequence", "scale_rewards": "none"},
    "grpo": {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "dr-grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
    },
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sapo": {"loss_type": "sapo"},
    "vespo": {"loss_type": "vespo"},
}
RAPID_SETTINGS = {
    "grpo": {"beta": 0.04, "epsilon": 0.2},
    "dapo": {"epsilon": 0.2, "epsilon_high": 0.28},
}


class RecordingStockTrainer(GradientRecorder, ScriptedGrpoTrainer):
    pass


class FixedLogpsTrainer(GRPOTrainer):
    """Computes TRL's loss of log-probabilities that a test sets."""

    def _get_per_token_logps_and_entropies(self, *_, **__):
        return self.logp, self.logp.detach(), None


def reward_thirds(completion_ids, **_):
    """Return rewards that are all 0 in some groups."""
    return [float(sum(ids) % 3 == 0) for ids in completion_ids]


def build_stock_trainer(trainer_class, objective, model, folder, H=1, **settings):
    """Return TRL's trainer with the settings of an algorithm."""
    sizes = {"per_device_train_batch_size": 16, "steps_per_generation": H}
    config = GRPOConfig(str(folder), **SHARED | sizes | TRL_SETTINGS[objective] | settings)
    trainer = make_trainer(trainer_class, config, model, reward_thirds, PROMPTS)
    trainer.current_gradient_accumulation_steps = 1  # as `train` sets it
    return trainer


def assert_close(actual, expected, tolerance):
    assert (actual - expected).norm() <= tolerance * expected.norm()


# A fixed batch ------------------------------------------------------------------------------------


def build_fixed_batch():
    """Return three groups of four, with prompts padded left and completions padded right."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(2, 258, (3, 5), generator=generator).repeat_interleave(GROUP_SIZE, 0)
    prompt_mask = (
        torch.arange(5) >= 5 - torch.tensor([5, 2, 3]).repeat_interleave(GROUP_SIZE)[:, None]
    )
    lengths = torch.tensor([6, 1, 3, 4, 2, 2, 5, 1, 1, 1, 4, 2])
    completion_mask = torch.arange(6) < lengths[:, None]
    completions = torch.randint(2, 258, (12, 6), generator=generator)
    batch = {
        "prompt_ids": prompts * prompt_mask,  # the pad token is 0
        "prompt_mask": prompt_mask.long(),
        "completion_ids": completions * completion_mask,
        "completion_mask": completion_mask.long(),
        "num_items_in_batch": lengths.sum(),
    }
    rewards = torch.tensor([1.0, 0, 0, 1, 0.3, 0.9, 0, 0.5, 1, 1, 1, 1], dtype=torch.float64)
    return batch, rewards


def compute_trl_advantages(rewards, scale):
    """Return advantages as `_generate_and_score_completions` does, with the sample's std."""
    groups = rewards.view(-1, GROUP_SIZE)
    advantages = groups - groups.mean(1, keepdim=True)
    if scale == "group":
        advantages = advantages / (groups.std(1, keepdim=True) + 1e-4)
    return advantages.flatten()


def draw_logps(shape, distance):
    """Return log pi, and log mu, which differs from it by `distance` times noise."""
    generator = torch.Generator().manual_seed(1)
    logp = -3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    return logp, logp - distance * torch.randn(shape, generator=generator, dtype=torch.float64)


def build_config(objective, folder, **settings):
    settings = SHARED | {"H": 2} | RAPID_SETTINGS.get(objective, {}) | settings
    return RapidConfig(str(folder), objective=objective, **settings)


@pytest.mark.parametrize("objective", TRL_SETTINGS)
def test_loss_and_gradient_match_stock_trl(toy_model, tmp_path, objective):
    # Build the configuration first, because it resets accelerate's state of processes.
    rapid_config = build_config(objective, tmp_path)
    trainer = build_stock_trainer(FixedLogpsTrainer, objective, toy_model, tmp_path)
    batch, rewards = build_fixed_batch()
    batch["advantages"] = compute_trl_advantages(rewards, trainer.args.scale_rewards)
    mask = batch["completion_mask"]
    # Every token clipped, none clipped, and some clipped.
    distance = torch.tensor([3.0, 1e-5, 0.5]).repeat(4)[:, None]
    logp, stale = draw_logps(mask.shape, distance)
    batch["ref_per_token_logps"] = reference = stale.flip(0)
    tolerance = 1e-7 if objective == "sapo" else 1e-12  # TRL's temperatures are float32
    for behavior_logp in (logp, stale):
        batch["old_per_token_logps"] = behavior_logp
        trainer.logp, rapid_logp = logp.clone().requires_grad_(), logp.clone().requires_grad_()
        trl_loss = trainer._compute_loss(trainer.model.train(), batch)
        inputs = LossInputs(
            rapid_logp, behavior_logp, reference, mask, rewards, GROUP_SIZE, limit=MAX_LENGTH
        )
        loss, metrics = rapid_config.algorithm.loss(rapid_config.settings, inputs)
        gradient, expected = (
            torch.autograd.grad(value, variable)[0]
            for value, variable in ((loss, rapid_logp), (trl_loss, trainer.logp))
        )
        assert_close(gradient, expected, tolerance)
        assert expected.norm() > 1e-3
        if objective == "pg":
            # On-policy only gradients agree: TRL's loss has ratios instead of log-probabilities.
            value = -(batch["advantages"] * mask.sum(1)).mean()
            assert trl_loss.item() == pytest.approx(value.item(), rel=FLOAT32_TOLERANCE)
            return
        assert loss.item() == pytest.approx(trl_loss.item(), rel=0, abs=tolerance)
        log = {name: values[-1] for name, values in trainer._metrics["train"].items()}
        trl_names = {"clip_fraction": "clip_ratio/region_mean", "clip_low": "clip_ratio/low_mean"}
        for name, trl_name in (trl_names | {"kl": "kl"}).items():
            if name in metrics and trl_name in log:
                assert metrics[name].item() == pytest.approx(log[trl_name], rel=FLOAT32_TOLERANCE)
        if "clip_low" in metrics and behavior_logp is stale:
            assert 0 < metrics["clip_low"] < metrics["clip_fraction"]
        metric = "weight" if objective == "vespo" else "clip_fraction"
        on_policy = 1.0 if objective == "vespo" else 0.0
        is_unchanged = metrics.get(metric, on_policy) == on_policy
        assert is_unchanged == (behavior_logp is logp or not metrics)


# Whole training steps -----------------------------------------------------------------------------


@pytest.fixture
def disable_shuffle(monkeypatch):
    """Disable TRL's shuffle, which splits groups, so that its mini-batches are RAPID's."""
    monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda batch: batch)


def train_both(objective, H, model, folder, *, skip=True, equal_lengths=False, **settings):
    """Return TRL's trainer and RAPID's after the optimizer steps of two inference batches."""
    settings = {"max_steps": 2 * H} | settings
    trl_trainer = build_stock_trainer(
        RecordingStockTrainer, objective, model, folder, H, **settings
    )
    sizes = {"H": H, "n_step": 16, "micro_batch_size": 8, "skip_zero_groups": skip}
    rapid_config = build_config(objective, folder, **sizes | settings)
    rapid_trainer = make_trainer(RecordingTrainer, rapid_config, model, reward_thirds, PROMPTS)
    for trainer in (trl_trainer, rapid_trainer):
        trainer.equal_lengths = equal_lengths
        trainer.train()
        assert len(trainer.gradients) == settings["max_steps"]
    return trl_trainer, rapid_trainer


def assert_same_steps(trl_trainer, rapid_trainer):
    for gradient, expected in zip(rapid_trainer.gradients, trl_trainer.gradients, strict=True):
        assert_close(gradient, expected, FLOAT32_TOLERANCE)
    if rapid_trainer.args.objective == "pg":
        return  # its loss differs
    assert rapid_trainer.losses == pytest.approx(trl_trainer.losses, abs=FLOAT32_TOLERANCE)
    clipped = logged_values(trl_trainer, "clip_ratio/region_mean")
    assert all((share > 0) == (i % rapid_trainer.args.H > 0) for i, share in enumerate(clipped))
    if rapid_trainer.args.objective == "dapo":
        shares_run = logged_values(rapid_trainer, "rapid/run")
        fractions = logged_values(rapid_trainer, "rapid/clip_fraction")
        products = [run * clip for run, clip in zip(shares_run, fractions, strict=True)]
        assert products == pytest.approx(clipped, rel=FLOAT32_TOLERANCE)


@pytest.mark.parametrize(
    ("objective", "H", "settings"),
    [
        ("pg", 1, {}),
        ("grpo", 2, {}),
        ("grpo", 2, {"beta": 0.0}),
        ("dapo", 2, {}),
        ("dr-grpo", 2, {"learning_rate": 4.0}),
    ],
    ids=["pg", "grpo", "grpo without kl", "dapo", "dr-grpo"],
)
def test_trainer_takes_steps_of_stock_trl(
    toy_model, tmp_path, disable_shuffle, objective, H, settings
):
    """RapidTrainer uses micro-batches and raw rewards, and skips groups.

    With H = 2 every second step is off-policy. DAPO's loss equals TRL's if all mini-batches have
    equally many tokens.
    """
    lengths = {"equal_lengths": objective == "dapo"}
    trl_trainer, rapid_trainer = train_both(
        objective, H, toy_model, tmp_path, **lengths, **settings
    )
    assert_same_steps(trl_trainer, rapid_trainer)
    assert (min(logged_values(rapid_trainer, "rapid/run")) < 1) == (not rapid_trainer.args.beta)
    if rapid_trainer.args.beta:  # on-policy, an evaluation's loss is the KL term alone
        loss, expected = (
            trainer.evaluate(trainer.train_dataset.select(range(4)))["eval_loss"]
            for trainer in (rapid_trainer, trl_trainer)
        )
        assert loss == pytest.approx(expected, rel=1e-4) and expected > 0


@pytest.mark.parametrize("objective", ["grpo", "dapo"])
def test_metrics_with_trl_names_match_stock_trl(toy_model, tmp_path, disable_shuffle, objective):
    beta = {"beta": 0.1} if objective == "grpo" else {}
    trl_trainer, rapid_trainer = train_both(
        objective, 2, toy_model, tmp_path, skip=False, equal_lengths=True, max_steps=8, **beta
    )
    names = ["entropy", *(f"clip_ratio/{kind}_mean" for kind in ("low", "high", "region"))]
    for name in names + ["kl"] * bool(beta):
        values, expected = logged_values(rapid_trainer, name), logged_values(trl_trainer, name)
        assert values == pytest.approx(expected, rel=1e-3, abs=1e-6), name
        assert len(values) == 8 and max(values) > 0
    assert bool(logged_values(rapid_trainer, "kl")) == bool(beta)
