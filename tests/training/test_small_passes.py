"""Passes smaller than a group have the gradient of whole groups, for every objective."""

import pytest
import torch
from transformers import AutoTokenizer

from rapid.algorithms import ALGORITHMS
from tests.training import loops
from tests.training.conformance.families import untrained
from tests.training.loops import COMMON, PLAIN

OBJECTIVES = [name for name, one in ALGORITHMS.items() if not one.imitates] + ["trl"]
GROUP = COMMON["num_generations"]
STEPS = 3  # on one inference batch: the policy moves between them


class Recording(loops.Recorded, loops.ScriptedTrainer):
    """Its completions do not depend on the policy."""


def gradients(model, folder, objective, **settings) -> tuple[torch.Tensor, list[float]]:
    """(steps, parameters) of an inference batch, and the losses."""
    h = 1 if objective != "trl" and ALGORITHMS[objective].H == "none" else STEPS
    sizes = {"H": h, "n_step": 8, "max_steps": STEPS, "learning_rate": 0.5}
    trainer = loops.run(model, folder, objective, trainer=Recording, **sizes | settings)
    return torch.stack(trainer.gradients), trainer.losses


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
    untrained("GPT2", torch.float64).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory):
    """The gradients of an objective by passes of a whole mini-batch; computed once."""
    known = {}

    def of(objective):
        if objective not in known:
            whole = PLAIN | {"micro_batch_size": 8}
            known[objective] = gradients(
                model, tmp_path_factory.mktemp("plain"), objective, **whole
            )
        return known[objective]

    return of


@pytest.mark.parametrize("size", [1, 2, 3, GROUP])
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
