"""Passes smaller than a group have the gradient of whole groups, for every objective."""

import pytest
import torch
from transformers import AutoTokenizer

from rapid.algorithms import ALGORITHMS
from tests.training import loops
from tests.training.conformance.families import build_untrained
from tests.training.loops import COMMON, NO_SAVINGS

OBJECTIVES = [name for name, one in ALGORITHMS.items() if not one.imitates] + ["trl"]
GROUP_SIZE = COMMON["num_generations"]
STEPS = 3  # on one inference batch: the policy moves between them


class Recording(loops.GradientRecorder, loops.ScriptedTrainer):
    """Its completions do not depend on the policy."""


def gradients(
    model, folder, objective, trainer=Recording, **settings
) -> tuple[torch.Tensor, list[float]]:
    """(steps, parameters) of an inference batch, and the losses."""
    h = 1 if objective != "trl" and ALGORITHMS[objective].H == "none" else STEPS
    sizes = {"H": h, "n_step": 8, "max_steps": STEPS, "learning_rate": 0.5}
    done = loops.train_rapid(model, folder, objective, trainer_class=trainer, **sizes | settings)
    return torch.stack(done.gradients), done.losses


@pytest.fixture(autouse=True)
def in_float64():
    """Shares and masks are made in the default precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def model(toy_model, tmp_path_factory):
    """A folder with a GPT-2, which computes all in its own precision: others' norms do not."""
    folder = tmp_path_factory.mktemp("gpt2")
    AutoTokenizer.from_pretrained(toy_model).save_pretrained(folder)
    build_untrained("GPT2", torch.float64).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory):
    """The gradients of an objective by passes of a whole mini-batch; computed once."""
    known = {}

    def of(objective):
        if objective not in known:
            whole = NO_SAVINGS | {"micro_batch_size": 8}
            known[objective] = gradients(
                model, tmp_path_factory.mktemp("plain"), objective, **whole
            )
        return known[objective]

    return of


@pytest.mark.parametrize("size", [1, 2, 3, GROUP_SIZE])
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_gradient_is_that_of_whole_groups(objective, pack, size, plain, model, tmp_path):
    expected, losses = plain(objective)
    found, its_losses = gradients(
        model, tmp_path, objective, micro_batch_size=size, pack=pack, skip_zero_groups=False
    )
    assert expected.norm() > 0
    assert (found - expected).norm() <= 1e-9 * expected.norm()
    assert its_losses == pytest.approx(losses, rel=1e-9, abs=1e-12)


class WithTools(Recording):
    """A third of the tokens are what tools answered: none of what is learned."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return batch | {"tool_mask": (batch["completion_ids"] % 3 > 0).long()}


class SomeEnd(Recording):
    """Two of three completions come to their end, the others are cut off."""

    def _generate_single_turn(self, *arguments):
        completions, logps = super()._generate_single_turn(*arguments)
        ends = [[*ids[:-1], 1] if n % 3 else ids for n, ids in enumerate(completions)]
        return ends, logps


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ("rapid", {"trainer_class": WithTools}),
        ("grpo", {"trainer_class": WithTools}),
        ("pg", {"trainer_class": SomeEnd, "mask_truncated_completions": True}),
        ("dapo", {"trainer_class": SomeEnd, "mask_truncated_completions": True}),
        ("rapid", {"reward": "partial_reward"}),
    ],
)
def test_what_is_not_learned_from_is_left_out_of_small_passes_too(
    objective, settings, pack, model, tmp_path
):
    """Tokens of tools, completions that were cut off, and groups that nobody graded."""
    whole = NO_SAVINGS | {"micro_batch_size": 8}
    small = {"micro_batch_size": 1, "pack": pack, "skip_zero_groups": False}
    (expected, losses), (found, its_losses) = (
        gradients(model, tmp_path, objective, **settings | sizes) for sizes in (whole, small)
    )
    assert expected.norm() > 0
    assert (found - expected).norm() <= 1e-9 * expected.norm()
    assert its_losses == pytest.approx(losses, rel=1e-9, abs=1e-12)


class Kept(Recording):
    """Keeps each mini-batch with the weights at that step."""

    def _policy_gradient(self, model, mini_batch, step):
        weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        vars(self).setdefault("kept", []).append((weights, mini_batch))
        return super()._policy_gradient(model, mini_batch, step)


def test_rapids_gradient_is_its_closed_form(model, tmp_path):
    """-1/N sum of w (R - mean of min(w, eta) R) grad log pi, from one forward pass of all."""
    sizes = {"H": STEPS, "n_step": 8, "max_steps": STEPS, "learning_rate": 0.5, "eta": 1.1}
    trainer = loops.train_rapid(
        model, tmp_path, "rapid", trainer_class=Kept, micro_batch_size=1, **sizes
    )
    policy, clipped = trainer.model, 0
    for (weights, batch), found in zip(trainer.kept, trainer.gradients, strict=True):
        policy.load_state_dict(weights)
        policy.zero_grad()
        mask = batch["completion_mask"]
        logp = loops.compute_logps(policy, batch)
        mu = batch.get("behavior_logp", logp.detach())
        weight = ((logp - mu) * mask).sum(1).detach().exp()
        value = (weight.clamp(max=1.1) * batch["rewards"]).view(-1, GROUP_SIZE).mean(1)
        advantage = batch["rewards"] - value.repeat_interleave(GROUP_SIZE)
        (-(weight * advantage * (logp * mask).sum(1)).mean()).backward()
        expected = torch.cat([one.grad.flatten() for one in policy.parameters()])
        assert (found - expected).norm() <= 1e-9 * expected.norm() > 0
        clipped += int((weight > 1.1).sum())
    assert clipped


@pytest.mark.parametrize("size", [1, 2, GROUP_SIZE])
@pytest.mark.parametrize("objective", ["rapid", "grpo", "m2po", "trl"])
def test_in_bfloat16_the_gradient_is_that_of_whole_groups_up_to_its_rounding(
    objective, size, toy_model, tmp_path
):
    torch.set_default_dtype(torch.float32)
    settings = {"bf16": True, "dtype": torch.float32, "learning_rate": 1e-3, "pack": False}
    settings |= {"skip_zero_groups": False, "reuse_logp": False}
    (expected, _), (found, _) = (
        gradients(toy_model, tmp_path, objective, micro_batch_size=n, **settings) for n in (8, size)
    )
    off = (found - expected).norm(dim=1) / expected.norm(dim=1)
    assert off.max() < 8 * 2.0**-8  # of the products that a gradient is made of, some
