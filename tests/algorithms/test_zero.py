"""Groups said to contribute nothing have a gradient of exactly zero, and no others are said to."""

from types import SimpleNamespace

import pytest
import torch

from rapid.algorithms import ALGORITHMS, CURRENT, dapo_loss, grpo_loss, pg_loss, rapid_loss
from rapid.algorithms.base import Pass

REWARDS = torch.tensor([0.0, 0, 0, 1, 1, 1, 1, 0, 1], dtype=torch.float64)  # three groups
MASK = torch.ones(9, 4, dtype=torch.float64)


SETTINGS = {"eta": 2.0, "beta": 0.0, "baseline": "group", "weighted": True, "offset": None}


def contributes(objective, rewards, group_size, on_policy, **settings):
    settings = SimpleNamespace(**SETTINGS | settings)
    return ALGORITHMS[objective].contributes(rewards, group_size, settings, on_policy=on_policy)


def gradients(objective, on_policy, beta=0.0, eta=2.0, **settings):
    """The gradient's size in each group, (3,)."""
    torch.manual_seed(0)
    logp = -torch.rand(9, 4, dtype=torch.float64)
    mu = logp.clone() if on_policy else -torch.rand(9, 4, dtype=torch.float64)
    reference = -torch.rand(9, 4, dtype=torch.float64)
    logp.requires_grad_()
    match objective:
        case "rapid":
            loss, _ = rapid_loss(logp, mu, MASK, REWARDS, 3, eta, **settings)
        case "pg":
            loss, _ = pg_loss(logp, MASK, REWARDS, 3)
        case "grpo":
            loss, _ = grpo_loss(logp, mu, reference, MASK, REWARDS, 3, beta, 0.2)
        case "dapo":
            loss, _ = dapo_loss(logp, mu, MASK, REWARDS, 3, 0.2, 0.28)
        case _:
            kind = ALGORITHMS[objective].parameters
            given = Pass(logp, mu, reference, MASK, REWARDS, 3)
            loss, _ = ALGORITHMS[objective].loss(kind and kind(**settings), given)
    loss.backward()
    return logp.grad.abs().view(3, -1).amax(1)


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize(
    ("objective", "settings"),
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
def test_what_is_skipped_has_no_gradient_and_what_is_run_has(objective, settings, on_policy):
    said = contributes(objective, REWARDS, 3, on_policy=on_policy, **settings)
    found = gradients(objective, on_policy, **settings) > 0
    assert said.tolist() == found.tolist()


def test_torn_groups_are_refused():
    with pytest.raises(ValueError, match="not whole groups"):
        contributes("pg", REWARDS, 4, on_policy=True)
