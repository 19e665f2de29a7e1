"""Groups said to contribute nothing have a gradient of exactly zero, and no others are said to."""

import pytest
import torch

from rapid.algorithms import ALGORITHMS, CURRENT
from rapid.algorithms.base import Pass

REWARDS = torch.tensor([0.0, 0, 0, 1, 1, 1, 1, 0, 1], dtype=torch.float64)  # three groups
GIVEN = {
    "rapid": {"eta": 2.0, "clip": "advantage"},
    "grpo": {"beta": 0.0, "epsilon": 0.2},
    "dapo": {"epsilon_low": 0.2, "epsilon_high": 0.28, "rounds": 1, "overlong_buffer": 0.2},
}


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        ("rapid", {}),
        ("rapid", {"eta": 0.5}),
        ("rapid", {"baseline": "others"}),
        ("rapid", {"baseline": "none"}),
        ("rapid", {"weighted": False}),
        ("rapid", {"weighted": False, "eta": 0.5}),
        ("rapid", {"weighted": False, "baseline": "none"}),
        ("pg", {}),
        ("grpo", {}),
        ("grpo", {"beta": 0.04}),
        ("dapo", {}),
        *((one.name, {}) for one in CURRENT),
        ("topr", {"offset": 0.5}),
    ],
)
def test_what_is_skipped_has_no_gradient_and_what_is_run_has(objective, changes, on_policy):
    algorithm = ALGORITHMS[objective]
    kind = algorithm.parameters
    settings = kind and kind(**GIVEN.get(objective, {}) | changes)
    torch.manual_seed(0)
    logp, mu, reference = -torch.rand(3, 9, 4, dtype=torch.float64)
    mu = logp.clone() if on_policy else mu
    given = Pass(logp.requires_grad_(), mu, reference, torch.ones(9, 4), REWARDS, 3)
    algorithm.loss(settings, given)[0].backward()
    said = algorithm.contributes(REWARDS, 3, settings, on_policy=on_policy)
    assert said.tolist() == (logp.grad.view(3, -1) != 0).any(1).tolist()


def test_torn_groups_are_refused():
    with pytest.raises(ValueError, match="9 completions are not whole groups of 4"):
        ALGORITHMS["pg"].contributes(REWARDS, 4, None, on_policy=True)
