"""`find_groups_with_gradient` and `advantages` agree with the gradient of the loss."""

import pytest
import torch

from rapid.algorithms import ALGORITHMS, LATER_ALGORITHMS
from rapid.algorithms.base import LossInputs

# Four groups; the standard deviation of the last is half that of the third.
REWARDS = torch.tensor([0.0, 0, 0, 1, 1, 1, 1, 0, 1, 0.5, 0, 0], dtype=torch.float64)
SETTINGS = {
    "rapid": {"eta": 2.0, "clip": "advantage"},
    "grpo": {"beta": 0.0, "epsilon": 0.2},
    "dapo": {"epsilon_low": 0.2, "epsilon_high": 0.28, "rounds": 1, "overlong_buffer": 0.2},
    "geo-mask": {"low": 0.5, "high": 2.0},  # the published bounds would leave out all completions
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
    ("rapid", {"baseline_scale": 0.25}),
    ("rapid", {"baseline_scale": 0.0}),
    ("rapid", {"baseline_scale": 0.5, "weighted": False}),
    ("rapid", {"baseline_scale": 0.5, "baseline": "others"}),
    ("rapid", {"equal_groups": "reinforced"}),
    ("rapid", {"equal_groups": "reinforced", "weighted": False}),
    ("rapid", {"equal_groups": "skipped"}),
    ("rapid", {"equal_groups": "skipped", "baseline": "none"}),
    ("rapid", {"equal_groups": "skipped", "baseline_scale": 0.0, "weighted": False}),
    ("rapid", {"positive_only": True, "weighted": False}),
    ("rapid", {"positive_only": True, "baseline_scale": 0.0}),
    ("pg", {}),
    ("grpo", {}),
    ("dapo", {}),
    *((algorithm.name, {}) for algorithm in LATER_ALGORITHMS),
    ("topr", {"offset": 0.5}),
    ("asymre", {"shift": 0.0}),
]


def compute_gradient(objective, changes, on_policy):
    """Return an algorithm, its settings, and its gradient by completion and token, (12, 4)."""
    algorithm = ALGORITHMS[objective]
    parameter_class = algorithm.parameters
    settings = parameter_class and parameter_class(**SETTINGS.get(objective, {}) | changes)
    torch.manual_seed(0)
    logp, behavior_logp, reference_logp = -torch.rand(3, 12, 4, dtype=torch.float64)
    behavior_logp = logp.clone() if on_policy else behavior_logp
    inputs = LossInputs(
        logp.requires_grad_(), behavior_logp, reference_logp, torch.ones(12, 4), REWARDS, 3
    )
    algorithm.loss(settings, inputs)[0].backward()
    return algorithm, settings, logp.grad


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize(("objective", "changes"), [*CASES, ("grpo", {"beta": 0.04})])
def test_exactly_groups_without_gradient_are_skipped(objective, changes, on_policy):
    algorithm, settings, gradient = compute_gradient(objective, changes, on_policy)
    have_gradient = algorithm.find_groups_with_gradient(REWARDS, 3, settings, on_policy=on_policy)
    assert have_gradient.tolist() == (gradient.view(4, -1) != 0).any(1).tolist()


@pytest.mark.parametrize(
    ("objective", "changes"),
    [*CASES, *(("rapid", {"eta": 0.5, "clip": clip}) for clip in ("both", "nowhere"))],
)
def test_on_policy_gradient_is_proportional_to_advantages(objective, changes):
    algorithm, settings, gradient = compute_gradient(objective, changes, on_policy=True)
    advantages = algorithm.advantages(settings, REWARDS, 3)
    expected = (advantages / advantages.norm())[:, None].expand(12, 4)
    torch.testing.assert_close(-gradient / gradient[:, 0].norm(), expected)


@pytest.mark.parametrize("eta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("baseline", ["group", "others"])
@pytest.mark.parametrize("on_policy", [True, False])
def test_no_group_with_a_gradient_is_skipped_with_positive_advantages_only(
    on_policy, baseline, eta
):
    """Off-policy, weights decide whether an advantage is positive, so groups without may be run."""
    changes = {"positive_only": True, "baseline": baseline, "eta": eta}
    algorithm, settings, gradient = compute_gradient("rapid", changes, on_policy)
    have_gradient = algorithm.find_groups_with_gradient(REWARDS, 3, settings, on_policy=on_policy)
    assert not ((gradient.view(4, -1) != 0).any(1) & ~have_gradient).any()
    assert not have_gradient[0]


def test_incomplete_groups_are_refused():
    with pytest.raises(ValueError, match="12 completions cannot be divided into groups of 5"):
        ALGORITHMS["pg"].find_groups_with_gradient(REWARDS, 5, None, on_policy=True)
