"""The baselines against stock TRL: the same loss and the same gradient on the same batch.

TRL takes log-probabilities in float32 even of a float64 model. Where its own are used, gradients
agree to float32's rounding (SINGLE); with float64 log-probabilities in their place, to float64's.
"""

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from performance.beside_trl import Float64
from rapid import RapidConfig
from rapid.algorithms import ALGORITHMS, dapo_loss, grpo_loss, pg_loss
from rapid.algorithms.base import Pass
from tests.training.loops import (
    COMMON,
    ROUNDING,
    Recorded,
    ScriptedGrpo,
    ScriptedRapid,
    logged,
    make,
)

GROUP, PROMPTS = 4, 16
SHARED = COMMON | {"learning_rate": 1.0, "max_completion_length": 8}
SINGLE, DOUBLE = ROUNDING, ROUNDING * 2.0**-29  # of the gradient's norm
BETA, EPSILON, EPSILON_HIGH = 0.04, 0.2, 0.28
# The settings of TRL with which it is the baseline.
STOCK = {
    "pg": {
        "loss_type": "luspo",
        "importance_sampling_level": "sequence",
        "scale_rewards": "none",
        "beta": 0.0,
    },
    "grpo": {
        "loss_type": "grpo",
        "scale_rewards": "group",
        "beta": BETA,
        "epsilon": EPSILON,
        "use_bias_correction_kl": False,
    },
    "dapo": {
        "loss_type": "dapo",
        "scale_rewards": "group",
        "beta": 0.0,
        "epsilon": EPSILON,
        "epsilon_high": EPSILON_HIGH,
    },
}
OURS = {
    "pg": {},
    "grpo": {"beta": BETA, "epsilon": EPSILON},
    "dapo": {"epsilon": EPSILON, "epsilon_high": EPSILON_HIGH},
}


class StockScripted(Recorded, ScriptedGrpo):
    pass


class RapidScripted(Recorded, ScriptedRapid):
    pass


def thirds(completion_ids, **_):
    """Rewards whose groups are now and then all 0."""
    return [float(sum(ids) % 3 == 0) for ids in completion_ids]


def stock(kind, objective, model, folder, n_step=16, H=1, **settings):
    """TRL's trainer, as a baseline."""
    sizes = {
        "per_device_train_batch_size": n_step,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": H,
    }
    config = GRPOConfig(str(folder), **SHARED | sizes | STOCK[objective] | settings)
    trainer = make(kind, config, model, thirds, PROMPTS)
    trainer.current_gradient_accumulation_steps = 1  # as `train` sets it
    return trainer


def assert_close(found, expected, tolerance):
    assert (found - expected).norm() <= tolerance * expected.norm()


# One batch by hand --------------------------------------------------------------------------------


def fixed_batch():
    """Three groups of four: prompts padded left, completions of 1 to 6 tokens padded right."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(2, 258, (3, 5), generator=generator).repeat_interleave(GROUP, 0)
    prompt_mask = torch.arange(5) >= 5 - torch.tensor([5, 2, 3]).repeat_interleave(GROUP)[:, None]
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
    groups = rewards.view(-1, GROUP)
    advantages = groups - groups.mean(1, keepdim=True)
    if scale == "group":
        advantages = advantages / (groups.std(1, keepdim=True) + 1e-4)
    return advantages.flatten()


def ours(objective, logp, batch, rewards):
    mask = batch["completion_mask"]
    match objective:
        case "pg":
            return pg_loss(logp, mask, rewards, GROUP)
        case "grpo":
            old, reference = batch["old_per_token_logps"], batch["ref_per_token_logps"]
            return grpo_loss(logp, old, reference, mask, rewards, GROUP, BETA, EPSILON)
        case "dapo":
            old = batch["old_per_token_logps"]
            return dapo_loss(logp, old, mask, rewards, GROUP, EPSILON, EPSILON_HIGH)


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [(GRPOTrainer, SINGLE), (Float64, DOUBLE)],
    ids=["stock", "float64"],
)
@pytest.mark.parametrize("objective", ["pg", "grpo", "dapo"])
def test_loss_and_gradient_are_those_of_stock_trl(toy_model, tmp_path, objective, kind, tolerance):
    trainer = stock(kind, objective, toy_model, tmp_path)
    model = trainer.model.train()
    batch, rewards = fixed_batch()

    def logp():
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        width = batch["completion_ids"].size(1)
        return trainer._get_per_token_logps_and_entropies(
            model, ids, mask, width, compute_entropy=True
        )[0]

    def gradient(loss):
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.parameters()])])

    now = logp().detach()
    if objective != "pg":  # off-policy, as far as clips some tokens at either end
        generator = torch.Generator().manual_seed(1)
        noise = torch.randn(2, *now.shape, generator=generator).to(now)
        batch["old_per_token_logps"] = now - 0.6 * noise[0]
        batch["ref_per_token_logps"] = now + 0.5 * noise[1]
    batch["advantages"] = advantages_of_trl(rewards, STOCK[objective]["scale_rewards"])

    theirs = trainer._compute_loss(model, batch)
    loss, metrics = ours(objective, logp(), batch, rewards)
    expected = gradient(theirs)
    assert_close(gradient(loss), expected, tolerance)
    assert expected.norm() > 0.1

    if objective == "pg":
        # The gradients are one; the loss is not. TRL's is that of ratios, which are 1.
        lengths = batch["completion_mask"].sum(1)
        value = -(batch["advantages"] * lengths).mean()
        assert theirs.item() == pytest.approx(value.item(), rel=SINGLE)
        return
    assert loss.item() == pytest.approx(theirs.item(), rel=tolerance)
    logged = trainer._metrics["train"]
    assert 0.1 < logged["clip_ratio/region_mean"][-1] < 0.9
    assert logged["clip_ratio/low_mean"][-1] > 0 < logged["clip_ratio/high_mean"][-1]
    share = logged["clip_ratio/region_mean"][-1]
    assert metrics["clip_fraction"].item() == pytest.approx(share, rel=SINGLE)
    if objective == "grpo":
        assert metrics["kl"].item() == pytest.approx(logged["kl"][-1], rel=SINGLE)


# Current practice: losses of given log-probabilities, with the published defaults -----------------

CURRENT = {
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


class Given(GRPOTrainer):
    """TRL's loss of log-probabilities that are set."""

    def _get_per_token_logps_and_entropies(self, *_, **__):
        return self.logp, self.logp.detach(), None


def scattered(shape, moved):
    """Log-probabilities, and those of a policy that each completion moved so far from."""
    generator = torch.Generator().manual_seed(2)
    logp = -3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    return logp, logp - moved * torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("objective", CURRENT)
def test_loss_and_gradient_of_current_practice_are_trls(toy_model, tmp_path, objective):
    config = GRPOConfig(str(tmp_path), **SHARED | {"beta": 0.0} | CURRENT[objective])
    trainer = make(Given, config, toy_model, thirds, PROMPTS)
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = 1
    batch, rewards = fixed_batch()
    scale = CURRENT[objective].get("scale_rewards", "group")
    batch["advantages"] = advantages_of_trl(rewards, scale)
    # Completions that moved far beyond every clip, and hardly.
    moved = torch.tensor([3.0, 1e-5, 0.5]).repeat(4)[:, None]
    logp, stale = scattered(batch["completion_ids"].shape, moved)
    algorithm = ALGORITHMS[objective]
    tolerance = 1e-7 if objective == "sapo" else 1e-12  # TRL's temperatures are float32
    for behavior_logp in (logp, stale):
        batch["old_per_token_logps"] = behavior_logp
        trainer.logp, own = logp.clone().requires_grad_(), logp.clone().requires_grad_()
        theirs = trainer._compute_loss(trainer.model.train(), batch)
        given = Pass(
            own, behavior_logp, logp, batch["completion_mask"], rewards, GROUP,
            limit=SHARED["max_completion_length"],
        )  # fmt: skip
        loss, metrics = algorithm.loss(algorithm.parameters(), given)
        assert loss.item() == pytest.approx(theirs.item(), rel=0, abs=tolerance)
        found, expected = (
            torch.autograd.grad(value, at)[0] for value, at in ((loss, own), (theirs, trainer.logp))
        )
        assert_close(found, expected, tolerance)
        assert expected.norm() > 1e-3
        at = "weight" if objective == "vespo" else "clip_fraction"
        on_policy = 1.0 if objective == "vespo" else 0.0
        assert (metrics.get(at, on_policy) == on_policy) == (behavior_logp is logp or not metrics)


# Whole training steps -----------------------------------------------------------------------------


@pytest.fixture
def in_order(monkeypatch):
    """Without the shuffle with which TRL tears groups apart, its mini-batches are ours."""
    monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda batch: batch)


def trained(objective, H, model, folder, *, skip=True, equal_lengths=False, **settings):
    """(stock TRL, RapidTrainer) after the optimizer steps of two inference batches."""
    settings = {"max_steps": 2 * H} | settings
    theirs = stock(StockScripted, objective, model, folder, n_step=16, H=H, **settings)
    sizes = {"H": H, "n_step": 16, "micro_batch_size": 8, "skip_zero_groups": skip}
    settings = SHARED | sizes | OURS[objective] | settings
    config = RapidConfig(str(folder), objective=objective, **settings)
    mine = make(RapidScripted, config, model, thirds, PROMPTS)
    for trainer in (theirs, mine):
        trainer.equal_lengths = equal_lengths
        trainer.train()
        assert len(trainer.gradients) == settings["max_steps"]
    return theirs, mine


def assert_same_steps(theirs, mine):
    for found, expected in zip(mine.gradients, theirs.gradients, strict=True):
        assert_close(found, expected, SINGLE)
    if mine.args.objective == "pg":
        return  # whose loss is another
    assert mine.losses == pytest.approx(theirs.losses, abs=SINGLE)
    clipped = logged(theirs, "clip_ratio/region_mean")
    assert all((share > 0) == (i % mine.args.H > 0) for i, share in enumerate(clipped))
    if mine.args.objective == "dapo":
        run, share = logged(mine, "rapid/run"), logged(mine, "rapid/clip_fraction")
        assert [x * y for x, y in zip(run, share, strict=True)] == pytest.approx(
            clipped, rel=SINGLE
        )


@pytest.mark.parametrize(
    ("objective", "H", "settings"),
    [("pg", 1, {}), ("grpo", 2, {}), ("grpo", 2, {"beta": 0.0}), ("dapo", 2, {})],
    ids=["pg", "grpo", "grpo without kl", "dapo"],
)
def test_the_trainer_takes_the_steps_of_stock_trl(
    toy_model, tmp_path, in_order, objective, H, settings
):
    """With its passes, savings and raw rewards; the second step of a batch is off-policy.

    DAPO is TRL's where mini-batches have as many tokens.
    """
    alike = {"equal_lengths": objective == "dapo"}
    theirs, mine = trained(objective, H, toy_model, tmp_path, **alike, **settings)
    assert_same_steps(theirs, mine)
    assert (min(logged(mine, "rapid/run")) < 1) == (not mine.args.beta)


def test_dapo_divides_by_a_mini_batchs_own_tokens_and_trl_by_their_mean(
    toy_model, tmp_path, in_order
):
    """TRL divides by the inference batch's tokens over H."""
    theirs, mine = trained("dapo", 2, toy_model, tmp_path, max_steps=1)
    ahead = mine.ahead()
    sampled = ahead["tokens"].item()
    first = sampled - sum(batch["completion_mask"].sum().item() for batch, _ in ahead["steps"])
    assert first != sampled / 2
    assert_close(mine.gradients[0] * first, theirs.gradients[0] * sampled / 2, SINGLE)


@pytest.mark.parametrize("objective", ["grpo", "dapo"])
def test_metrics_by_trls_names_are_those_of_stock_trl(toy_model, tmp_path, in_order, objective):
    beta = {"beta": 0.1} if objective == "grpo" else {}
    theirs, mine = trained(
        objective, 2, toy_model, tmp_path, skip=False, equal_lengths=True, max_steps=8, **beta
    )
    names = ["entropy", *(f"clip_ratio/{kind}_mean" for kind in ("low", "high", "region"))]
    for name in names + ["kl"] * bool(beta):
        found, expected = logged(mine, name), logged(theirs, name)
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-6), name
        assert len(found) == 8 and max(found) > 0
    assert bool(logged(mine, "kl")) == bool(beta)
