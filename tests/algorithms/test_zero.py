"""Properties of a gradient without computing it: the groups where it is zero, and advantages."""

import pytest
import torch

from rapid.algorithms import ALGORITHMS, CURRENT
from rapid.algorithms.base import LossInputs

# Of four groups; the deviation of the last is half the one before.
REWARDS = torch.tensor([0.0, 0, 0, 1, 1, 1, 1, 0, 1, 0.5, 0, 0], dtype=torch.float64)
SETTINGS = {
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
    *((algorithm.name, {}) for algorithm in CURRENT),
    ("topr", {"offset": 0.5}),
]


def compute_gradient(objective, changes, on_policy):
    """Return an objective, its settings, and its gradient by completion and token, (12, 4)."""
    algorithm = ALGORITHMS[objective]
    kind = algorithm.parameters
    settings = kind and kind(**SETTINGS.get(objective, {}) | changes)
    torch.manual_seed(0)
    logp, mu, reference = -torch.rand(3, 12, 4, dtype=torch.float64)
    mu = logp.clone() if on_policy else mu
    inputs = LossInputs(logp.requires_grad_(), mu, reference, torch.ones(12, 4), REWARDS, 3)
    algorithm.loss(settings, inputs)[0].backward()
    return algorithm, settings, logp.grad


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize(("objective", "changes"), [*CASES, ("grpo", {"beta": 0.04})])
def test_groups_are_skipped_exactly_if_they_have_no_gradient(objective, changes, on_policy):
    algorithm, settings, gradient = compute_gradient(objective, changes, on_policy)
    have_gradient = algorithm.have_gradient(REWARDS, 3, settings, on_policy=on_policy)
    assert have_gradient.tolist() == (gradient.view(4, -1) != 0).any(1).tolist()


@pytest.mark.parametrize(
    ("objective", "changes"),
    [*CASES, *(("rapid", {"eta": 0.5, "clip": clip}) for clip in ("both", "nowhere"))],
)
def test_an_on_policy_gradient_goes_along_the_advantages(objective, changes):
    algorithm, settings, gradient = compute_gradient(objective, changes, on_policy=True)
    advantages = algorithm.advantages(settings, REWARDS, 3)
    expected = (advantages / advantages.norm())[:, None].expand(12, 4)
    torch.testing.assert_close(-gradient / gradient[:, 0].norm(), expected)


def test_incomplete_groups_are_refused():
    with pytest.raises(ValueError, match="12 completions cannot be divided into groups of 5"):
        ALGORITHMS["pg"].have_gradient(REWARDS, 5, None, on_policy=True)
