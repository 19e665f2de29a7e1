"""GRPOTrainer with the settings closest to RAPID differs from it as docs/beside-trl.md says."""

import re

import pytest
import torch

from performance.trainers import NEAREST_SETTINGS
from rapid.algorithms import rapid_loss
from rapid.algorithms.groups import group_mean
from tests.algorithms.test_against_trl import (
    GROUP_SIZE,
    FixedLogpsTrainer,
    assert_close,
    build_fixed_batch,
    build_stock_trainer,
    compute_trl_advantages,
    draw_logps,
)
from tests.conftest import ROOT


def test_recipe_on_page_has_the_measured_settings():
    page = (ROOT / "docs/beside-trl.md").read_text(encoding="utf-8")
    recipe_code = re.search(r"^```python\n(.*?)```", page, re.MULTILINE | re.DOTALL)[1]
    variables = {}
    exec(
        recipe_code.replace("GRPOConfig(\n", "GRPOConfig(\n    use_cpu=True, bf16=False,\n"),
        variables,
    )
    recipe = variables["training_args"]
    assert {name: getattr(recipe, name) for name in NEAREST_SETTINGS} == NEAREST_SETTINGS
    assert recipe.steps_per_generation == 4 * recipe.gradient_accumulation_steps  # H
    assert recipe.generation_batch_size % recipe.num_generations == 0


@pytest.mark.parametrize("staleness", [0.0, 0.1, 1.0])
def test_closest_trl_gradient_lacks_weighted_baseline(toy_model, tmp_path, staleness):
    """Its weights are w exp(lambda (1 - w)). On-policy they are 1, and the gradients are equal."""
    trainer = build_stock_trainer(
        FixedLogpsTrainer,
        "pg",
        toy_model,
        tmp_path,
        importance_sampling_level="token",
        **NEAREST_SETTINGS,
    )
    batch, rewards = build_fixed_batch()
    batch["advantages"], mask = compute_trl_advantages(rewards, "none"), batch["completion_mask"]
    logp, behavior_logp = draw_logps(mask.shape, torch.full((len(mask), 1), staleness))
    trainer.logp, batch["old_per_token_logps"] = logp.requires_grad_(), behavior_logp

    def compute_gradient(loss):
        return torch.autograd.grad(loss, logp)[0]

    trl_gradient = (
        compute_gradient(trainer._compute_loss(trainer.model.train(), batch))
        * mask.sum()
        / len(mask)
    )
    rapid_gradient = compute_gradient(
        rapid_loss(logp, behavior_logp, mask, rewards, GROUP_SIZE, eta=2.0)[0]
    )
    weight = ((logp.detach() - behavior_logp) * mask).sum(1).exp()
    decay = torch.tensor(NEAREST_SETTINGS["vespo_lambda_pos"]).item()  # float32, as TRL takes it
    kernel = weight * (decay * (1 - weight)).exp()
    missing_baseline = group_mean((weight.clamp(max=2) - 1) * rewards, GROUP_SIZE)
    difference = (kernel - weight) * batch["advantages"] + weight * missing_baseline
    expected = compute_gradient(-(difference * (logp * mask).sum(1)).mean())
    assert_close(trl_gradient, rapid_gradient + expected, 1e-12)
    assert (expected.norm() > 0.01 * rapid_gradient.norm()) == (staleness > 0)
