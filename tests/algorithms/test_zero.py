"""What is said of a gradient without computing it: where it is exactly zero, and its advantages."""

import pytest
import torch

from rapid.algorithms import ALGORITHMS, CURRENT
from rapid.algorithms.base import LossInputs

# Of four groups; the deviation of the last is half the one before.
REWARDS = torch.tensor([0.0, 0, 0, 1, 1, 1, 1, 0, 1, 0.5, 0, 0], dtype=torch.float64)
GIVEN = {
    "rapid": {"eta": 2.0, "clip": "advantage"},
    "grpo": {"beta": 0.0, "epsilon": 0.2},
    "dapo": {"epsilon_low": 0.2, "epsilon_high": 0.28, "rounds": 1, "overlong_buffer": 0.2},
}


CASES = [
    ("rapid", {}),
    ("rapid", {"eta": 0.5}),
    ("rapid", {"eta": 1.0}),
    ("rapid", {"baseline": "others"}),
    ("rapid", {"baseline": "none"}),
    ("rapid", {"weighted": False}),
    ("rapid", {"weighted": False, "eta": 0.5}),
    ("rapid", {"weighted": False, "baseline": "none"}),
    ("pg", {}),
    ("grpo", {}),
    ("dapo", {}),
    *((one.name, {}) for one in CURRENT),
    ("topr", {"offset": 0.5}),
]


def gradient(objective, changes, on_policy):
    """Return an objective, its settings, and its gradient by completion and token, (12, 4)."""
    algorithm = ALGORITHMS[objective]
    kind = algorithm.parameters
    settings = kind and kind(**GIVEN.get(objective, {}) | changes)
    torch.manual_seed(0)
    logp, mu, reference = -torch.rand(3, 12, 4, dtype=torch.float64)
    mu = logp.clone() if on_policy else mu
    given = LossInputs(logp.requires_grad_(), mu, reference, torch.ones(12, 4), REWARDS, 3)
    algorithm.loss(settings, given)[0].backward()
    return algorithm, settings, logp.grad


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize(("objective", "changes"), [*CASES, ("grpo", {"beta": 0.04})])
def test_what_is_skipped_has_no_gradient_and_what_is_run_has(objective, changes, on_policy):
    algorithm, settings, found = gradient(objective, changes, on_policy)
    said = algorithm.have_gradient(REWARDS, 3, settings, on_policy=on_policy)
    assert said.tolist() == (found.view(4, -1) != 0).any(1).tolist()


@pytest.mark.parametrize(
    ("objective", "changes"),
    [*CASES, *(("rapid", {"eta": 0.5, "clip": clip}) for clip in ("both", "nowhere"))],
)
def test_an_on_policy_gradient_goes_along_the_advantages(objective, changes):
    algorithm, settings, found = gradient(objective, changes, on_policy=True)
    advantages = algorithm.advantages(settings, REWARDS, 3)
    expected = (advantages / advantages.norm())[:, None].expand(12, 4)
    torch.testing.assert_close(-found / found[:, 0].norm(), expected)


def test_torn_groups_are_refused():
    with pytest.raises(ValueError, match="12 completions are not whole groups of 5"):
        ALGORITHMS["pg"].have_gradient(REWARDS, 5, None, on_policy=True)
