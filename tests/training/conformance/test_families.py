"""Every family of models trains with the defaults, and has TRL's gradient where TRL's loss is ours.

The oracle of log-probabilities is one plain forward pass for each completion, without padding.
"""

from itertools import product

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from rapid import RapidTrainer
from rapid.training.caches import can_share_prompts
from rapid.training.dropout import remove_dropout
from rapid.training.forward import completion_logp
from tests.training.conformance.families import ATTENTION, FAMILIES, STATES, untrained
from tests.training.conftest import GROUP
from tests.training.loops import ScriptedGrpo, ScriptedTrainer, logged, weights


def sharp(family: str):
    """A model whose predictions differ more than an untrained one's, as it is while it trains."""
    model = untrained(family)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= 3
    add_fused_lm_head(model, temperature=1.0)
    remove_dropout(model)
    return model.train()


@torch.no_grad()
def one_by_one(model, micro_batch) -> torch.Tensor:
    """(N, T), from a forward pass of each prompt and completion by themselves; 0 at padding."""
    found = torch.zeros(micro_batch["completion_ids"].shape)
    for row in range(len(found)):
        prompt, completion = (
            micro_batch[f"{part}_ids"][row][micro_batch[f"{part}_mask"][row].bool()]
            for part in ("prompt", "completion")
        )
        ids = torch.cat([prompt, completion])
        logits = model(ids[None], use_cache=False).logits[0, -len(completion) - 1 : -1].float()
        found[row, : len(completion)] = logits.log_softmax(-1).gather(1, completion[:, None])[:, 0]
    return found


@pytest.mark.parametrize(
    ("family", "share"), [*product(FAMILIES, [False]), *product(ATTENTION, [True])]
)
def test_log_probabilities_are_those_of_each_completion_by_itself(family, share, micro_batch):
    model = sharp(family)
    found, _ = completion_logp(model, micro_batch, GROUP, 1.0, share)
    found = found * micro_batch["completion_mask"]
    torch.testing.assert_close(found.float(), one_by_one(model, micro_batch), rtol=0, atol=2e-5)


@pytest.mark.parametrize("family", ATTENTION)
def test_a_shared_prompt_has_the_gradient_of_a_plain_pass(family, micro_batch):
    gradients = []
    for share in (False, True):
        model = sharp(family)
        logp, _ = completion_logp(model, micro_batch, GROUP, 1.0, share)
        (logp * micro_batch["completion_mask"] * torch.arange(1, 7)).sum().backward()
        gradients.append(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        )
    plain, shared = gradients
    torch.testing.assert_close(shared, plain, rtol=1e-3, atol=1e-5 * float(plain.abs().max()))


def test_prompts_are_shared_where_a_cache_is_keys_and_values():
    assert all(can_share_prompts(untrained(family)) for family in ATTENTION)
    assert not any(can_share_prompts(untrained(family)) for family in STATES)
    balanced = untrained("Mixtral")  # its loss is of all tokens of a pass, prompts' too
    balanced.config.output_router_logits = True
    assert not can_share_prompts(balanced)


# Training -----------------------------------------------------------------------------------------


def quiet(family: str):
    """An untrained model without dropout: TRL's disable_dropout would leave OPT's as it is."""
    remove_dropout(model := untrained(family))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_it_trains_with_the_defaults(family, train):
    """Sampled, not scripted: what is sampled is of the policy that learns from it."""
    sizes = {"H": 2, "n_step": 16, "micro_batch_size": 8, "max_steps": 2, "learning_rate": 0.01}
    trainer = train(RapidTrainer, untrained(family), **sizes)
    start = torch.cat([p.flatten() for p in untrained(family).parameters()])
    assert (weights(trainer) - start).abs().max() > 1e-6
    # A family whose sampling notes no log mu learns from a forward pass's: nothing can differ.
    assert all(off < 1e-5 for off in logged(trainer, "rapid/sampler_mismatch"))
    assert logged(trainer, "rapid/staleness")[0] == pytest.approx(0, abs=1e-5)
    assert logged(trainer, "rapid/weight")[0] == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_of_grpo_is_trls(family, train):
    plain = {"learning_rate": 1.0}  # the step of SGD is the gradient
    if hasattr(untrained(family).config, "router_aux_loss_coef"):
        plain["router_aux_loss_coef"] = 0.0
    given = {"loss_type": "grpo", "per_device_train_batch_size": 16}
    theirs = train(ScriptedGrpo, quiet(family), **given, **plain)
    sizes = {"objective": "grpo", "H": 1, "n_step": 16, "micro_batch_size": 8}
    ours = train(ScriptedTrainer, quiet(family), **sizes, **plain)
    start = torch.cat([p.detach().flatten() for p in untrained(family).parameters()])
    theirs, ours = weights(theirs) - start, weights(ours) - start
    assert theirs.abs().max() > 1e-4
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))
