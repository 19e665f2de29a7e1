"""Every model family trains with the defaults, and has TRL's gradient with TRL's loss.

Log-probabilities are compared with a plain forward pass of each completion without padding.
"""

from itertools import product

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from rapid import RapidTrainer
from rapid.training.caches import can_share_prompts
from rapid.training.dropout import remove_dropout
from rapid.training.forward import compute_completion_logps
from tests.training.conformance.families import (
    ATTENTION,
    FAMILIES,
    STATES,
    build_untrained,
    build_without_dropout,
)
from tests.training.conftest import GROUP_SIZE
from tests.training.loops import ScriptedGrpoTrainer, ScriptedTrainer, get_weights, logged_values


def build_sharp_model(family: str):
    """Return a model in training mode, without dropout and with sharper predictions."""
    model = build_untrained(family)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= 3
    add_fused_lm_head(model, temperature=1.0)
    remove_dropout(model)
    return model.train()


@torch.no_grad()
def compute_logps_one_by_one(model, micro_batch) -> torch.Tensor:
    """Return log-probabilities, (N, T), from a forward pass of each row alone; 0 at padding."""
    logps = torch.zeros(micro_batch["completion_ids"].shape)
    for row in range(len(logps)):
        prompt, completion = (
            micro_batch[f"{part}_ids"][row][micro_batch[f"{part}_mask"][row].bool()]
            for part in ("prompt", "completion")
        )
        ids = torch.cat([prompt, completion])
        logits = model(ids[None], use_cache=False).logits[0, -len(completion) - 1 : -1].float()
        logps[row, : len(completion)] = logits.log_softmax(-1).gather(1, completion[:, None])[:, 0]
    return logps


@pytest.mark.parametrize(
    ("family", "share"), [*product(FAMILIES, [False]), *product(ATTENTION, [True])]
)
def test_logps_match_unpadded_forward_pass_of_each_completion(family, share, micro_batch):
    model = build_sharp_model(family)
    logp, _ = compute_completion_logps(model, micro_batch, GROUP_SIZE, 1.0, share)
    logp = logp * micro_batch["completion_mask"]
    torch.testing.assert_close(
        logp.float(), compute_logps_one_by_one(model, micro_batch), rtol=0, atol=2e-5
    )


@pytest.mark.parametrize("family", ATTENTION)
def test_shared_prompt_has_gradient_of_plain_forward_pass(family, micro_batch):
    gradients = []
    for share in (False, True):
        model = build_sharp_model(family)
        logp, _ = compute_completion_logps(model, micro_batch, GROUP_SIZE, 1.0, share)
        (logp * micro_batch["completion_mask"] * torch.arange(1, 7)).sum().backward()
        gradients.append(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        )
    plain, shared = gradients
    torch.testing.assert_close(shared, plain, rtol=1e-3, atol=1e-5 * float(plain.abs().max()))


def test_prompts_are_shared_only_with_key_value_caches():
    assert all(can_share_prompts(build_untrained(family)) for family in ATTENTION)
    assert not any(can_share_prompts(build_untrained(family)) for family in STATES)
    # A load-balancing loss counts all tokens of a micro-batch, including prompts.
    balanced_model = build_untrained("Mixtral")
    balanced_model.config.output_router_logits = True
    assert not can_share_prompts(balanced_model)


# Training -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_family_trains_with_defaults(family, train):
    """Completions are sampled from the policy, not scripted."""
    sizes = {"H": 2, "n_step": 16, "micro_batch_size": 8, "max_steps": 2, "learning_rate": 0.01}
    trainer = train(RapidTrainer, build_untrained(family), **sizes)
    start = torch.cat([p.flatten() for p in build_untrained(family).parameters()])
    assert (get_weights(trainer) - start).abs().max() > 1e-6
    # Where sampling records no log mu, a forward pass computes it, and there is no mismatch.
    assert all(mismatch < 1e-5 for mismatch in logged_values(trainer, "rapid/sampler_mismatch"))
    assert logged_values(trainer, "rapid/staleness")[0] == pytest.approx(0, abs=1e-5)
    assert logged_values(trainer, "rapid/weight")[0] == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_grpo_gradient_matches_trl(family, train):
    settings = {"learning_rate": 1.0}  # the step of SGD is the gradient
    if hasattr(build_untrained(family).config, "router_aux_loss_coef"):
        settings["router_aux_loss_coef"] = 0.0
    trl_sizes = {"loss_type": "grpo", "per_device_train_batch_size": 16}
    trl_trainer = train(ScriptedGrpoTrainer, build_without_dropout(family), **trl_sizes, **settings)
    sizes = {"objective": "grpo", "H": 1, "n_step": 16, "micro_batch_size": 8}
    rapid_trainer = train(ScriptedTrainer, build_without_dropout(family), **sizes, **settings)
    start = torch.cat([p.detach().flatten() for p in build_untrained(family).parameters()])
    trl_step, rapid_step = get_weights(trl_trainer) - start, get_weights(rapid_trainer) - start
    assert trl_step.abs().max() > 1e-4
    torch.testing.assert_close(
        rapid_step, trl_step, rtol=1e-3, atol=1e-4 * float(trl_step.abs().max())
    )
