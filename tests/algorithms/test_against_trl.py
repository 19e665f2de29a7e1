"""Algorithms against stock TRL: the same loss and the same gradient on the same batch.

TRL takes log-probabilities in float32 even of a float64 model: gradients of whole steps agree to
its rounding (SINGLE), losses of given log-probabilities to float64's.
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
    ScriptedGrpoTrainer,
    ScriptedTrainer,
    logged_values,
    make_trainer,
)

GROUP_SIZE, PROMPTS, LIMIT = 4, 16, 8
SHARED = COMMON | {"learning_rate": 1.0, "max_completion_length": LIMIT}
SINGLE = ROUNDING  # of the gradient's norm
# The settings of TRL with which it is the algorithm, and ours where they are not the defaults.
STOCK = {
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


class StockScripted(GradientRecorder, ScriptedGrpoTrainer):
    pass


class RapidScripted(GradientRecorder, ScriptedTrainer):
    pass


class FixedLogpsTrainer(GRPOTrainer):
    """TRL's loss of log-probabilities that are set."""

    def _get_per_token_logps_and_entropies(self, *_, **__):
        return self.logp, self.logp.detach(), None


def reward_thirds(completion_ids, **_):
    """Rewards whose groups are now and then all 0."""
    return [float(sum(ids) % 3 == 0) for ids in completion_ids]


def build_stock_trainer(kind, objective, model, folder, H=1, **settings):
    """TRL's trainer, as an algorithm."""
    sizes = {"per_device_train_batch_size": 16, "steps_per_generation": H}
    config = GRPOConfig(str(folder), **SHARED | sizes | STOCK[objective] | settings)
    trainer = make_trainer(kind, config, model, reward_thirds, PROMPTS)
    trainer.current_gradient_accumulation_steps = 1  # as `train` sets it
    return trainer


def assert_close(actual, expected, tolerance):
    assert (actual - expected).norm() <= tolerance * expected.norm()


# One batch by hand --------------------------------------------------------------------------------


def fixed_batch():
    """Three groups of four: prompts padded left, completions of 1 to 6 tokens padded right."""
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


def advantages_of_trl(rewards, scale):
    """As `_generate_and_score_completions` finds them, whose std is a sample's."""
    groups = rewards.view(-1, GROUP_SIZE)
    advantages = groups - groups.mean(1, keepdim=True)
    if scale == "group":
        advantages = advantages / (groups.std(1, keepdim=True) + 1e-4)
    return advantages.flatten()


def draw_logps(shape, moved):
    """Log-probabilities, and those of a policy that each completion moved so far from."""
    generator = torch.Generator().manual_seed(1)
    logp = -3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    return logp, logp - moved * torch.randn(shape, generator=generator, dtype=torch.float64)


def build_config(objective, folder, **settings):
    settings = SHARED | {"H": 2} | RAPID_SETTINGS.get(objective, {}) | settings
    return RapidConfig(str(folder), objective=objective, **settings)


@pytest.mark.parametrize("objective", STOCK)
def test_loss_and_gradient_are_those_of_stock_trl(toy_model, tmp_path, objective):
    rapid_config = build_config(
        objective, tmp_path
    )  # first: it resets what a trainer knows of processes
    trainer = build_stock_trainer(FixedLogpsTrainer, objective, toy_model, tmp_path)
    batch, rewards = fixed_batch()
    batch["advantages"] = advantages_of_trl(rewards, trainer.args.scale_rewards)
    mask = batch["completion_mask"]
    # Completions that moved far beyond every clip, hardly, and as far as clips some tokens.
    moved = torch.tensor([3.0, 1e-5, 0.5]).repeat(4)[:, None]
    logp, stale = draw_logps(mask.shape, moved)
    batch["ref_per_token_logps"] = reference = stale.flip(0)
    tolerance = 1e-7 if objective == "sapo" else 1e-12  # TRL's temperatures are float32
    for behavior_logp in (logp, stale):
        batch["old_per_token_logps"] = behavior_logp
        trainer.logp, rapid_logp = logp.clone().requires_grad_(), logp.clone().requires_grad_()
        trl_loss = trainer._compute_loss(trainer.model.train(), batch)
        inputs = LossInputs(
            rapid_logp, behavior_logp, reference, mask, rewards, GROUP_SIZE, limit=LIMIT
        )
        loss, metrics = rapid_config.algorithm.loss(rapid_config.settings, inputs)
        gradient, expected = (
            torch.autograd.grad(value, variable)[0]
            for value, variable in ((loss, rapid_logp), (trl_loss, trainer.logp))
        )
        assert_close(gradient, expected, tolerance)
        assert expected.norm() > 1e-3
        if objective == "pg":
            # The gradients are one on-policy; the loss is not. TRL's is that of ratios, which are 1.
            value = -(batch["advantages"] * mask.sum(1)).mean()
            assert trl_loss.item() == pytest.approx(value.item(), rel=SINGLE)
            return
        assert loss.item() == pytest.approx(trl_loss.item(), rel=0, abs=tolerance)
        log = {name: values[-1] for name, values in trainer._metrics["train"].items()}
        shares = {"clip_fraction": "clip_ratio/region_mean", "clip_low": "clip_ratio/low_mean"}
        for name, variable in (shares | {"kl": "kl"}).items():
            if name in metrics and variable in log:
                assert metrics[name].item() == pytest.approx(log[variable], rel=SINGLE)
        if "clip_low" in metrics and behavior_logp is stale:
            assert 0 < metrics["clip_low"] < metrics["clip_fraction"]
        metric = "weight" if objective == "vespo" else "clip_fraction"
        on_policy = 1.0 if objective == "vespo" else 0.0
        is_unchanged = metrics.get(metric, on_policy) == on_policy
        assert is_unchanged == (behavior_logp is logp or not metrics)


# Whole training steps -----------------------------------------------------------------------------


@pytest.fixture
def in_order(monkeypatch):
    """Without the shuffle with which TRL tears groups apart, its mini-batches are ours."""
    monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda batch: batch)


def train_both(objective, H, model, folder, *, skip=True, equal_lengths=False, **settings):
    """(stock TRL, RapidTrainer) after the optimizer steps of two inference batches."""
    settings = {"max_steps": 2 * H} | settings
    trl_trainer = build_stock_trainer(StockScripted, objective, model, folder, H, **settings)
    sizes = {"H": H, "n_step": 16, "micro_batch_size": 8, "skip_zero_groups": skip}
    rapid_config = build_config(objective, folder, **sizes | settings)
    rapid_trainer = make_trainer(RapidScripted, rapid_config, model, reward_thirds, PROMPTS)
    for trainer in (trl_trainer, rapid_trainer):
        trainer.equal_lengths = equal_lengths
        trainer.train()
        assert len(trainer.gradients) == settings["max_steps"]
    return trl_trainer, rapid_trainer


def assert_same_steps(trl_trainer, rapid_trainer):
    for gradient, expected in zip(rapid_trainer.gradients, trl_trainer.gradients, strict=True):
        assert_close(gradient, expected, SINGLE)
    if rapid_trainer.args.objective == "pg":
        return  # whose loss is another
    assert rapid_trainer.losses == pytest.approx(trl_trainer.losses, abs=SINGLE)
    clipped = logged_values(trl_trainer, "clip_ratio/region_mean")
    assert all((share > 0) == (i % rapid_trainer.args.H > 0) for i, share in enumerate(clipped))
    if rapid_trainer.args.objective == "dapo":
        run, share = (
            logged_values(rapid_trainer, "rapid/run"),
            logged_values(rapid_trainer, "rapid/clip_fraction"),
        )
        assert [x * y for x, y in zip(run, share, strict=True)] == pytest.approx(
            clipped, rel=SINGLE
        )


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
def test_the_trainer_takes_the_steps_of_stock_trl(
    toy_model, tmp_path, in_order, objective, H, settings
):
    """With its passes, savings and raw rewards; the second step of a batch is off-policy.

    DAPO is TRL's where mini-batches have as many tokens.
    """
    lengths = {"equal_lengths": objective == "dapo"}
    trl_trainer, rapid_trainer = train_both(
        objective, H, toy_model, tmp_path, **lengths, **settings
    )
    assert_same_steps(trl_trainer, rapid_trainer)
    assert (min(logged_values(rapid_trainer, "rapid/run")) < 1) == (not rapid_trainer.args.beta)
    if rapid_trainer.args.beta:  # which an evaluation's loss is of alone, where weights are 1
        loss, expected = (
            trainer.evaluate(trainer.train_dataset.select(range(4)))["eval_loss"]
            for trainer in (rapid_trainer, trl_trainer)
        )
        assert loss == pytest.approx(expected, rel=1e-4) and expected > 0


@pytest.mark.parametrize("objective", ["grpo", "dapo"])
def test_metrics_by_trls_names_are_those_of_stock_trl(toy_model, tmp_path, in_order, objective):
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
