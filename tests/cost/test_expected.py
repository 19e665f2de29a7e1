"""Expected shares of groups with a gradient, numbers of sampled groups, longest completions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rapid.algorithms.variant_names import parse_variant_name
from rapid.cost.expected import Expected, expect
from rapid.cost.work import estimate_sampling_rounds, estimate_trained_share
from tests.cost.conftest import EXPECTED, make_spec


@pytest.fixture(scope="module")
def rewards() -> torch.Tensor:
    """Rewards of 20000 groups of 4 with different solve rates, (20000, 4)."""
    generator = torch.Generator().manual_seed(0)
    rates = torch.rand(20000, 1, generator=generator) ** 2
    return (torch.rand(20000, 4, generator=generator) < rates).float()


@pytest.mark.parametrize(
    "name", ["pg", "pg-H2", "grpo", "grpo-H4", "rapid-H4", "rapid-H16", "rapid-H4,weighted=false",
             "rapid-H4,baseline=none", "rapid-H4,eta=0.5"],
)  # fmt: skip
def test_estimated_share_of_groups_with_a_gradient_is_that_of_the_algorithm(params, rewards, name):
    spec = make_spec(params, name)
    have_gradient = parse_variant_name(name).algorithm.find_groups_with_gradient
    shares = [
        have_gradient(rewards.flatten(), 4, spec.objective, on_policy=step == 0).float().mean()
        for step in range(spec.H)
    ]
    mixed = (rewards != rewards[:, :1]).any(1).float().mean().item()
    rewarded = (rewards > 0).any(1).float().mean().item()
    expected = replace(EXPECTED, signal=mixed, rewarded=rewarded)
    assert estimate_trained_share(spec, expected) == pytest.approx(
        sum(shares).item() / spec.H, abs=1e-6
    )


@pytest.mark.parametrize(("groups", "n_step", "H"), [(1, 4, 1), (8, 32, 1), (8, 4, 8)])
def test_dapo_samples_as_many_groups_as_a_simulation(params, groups, n_step, H):
    spec = make_spec(params, "dapo").model_copy(update={"n_step": n_step, "H": H})
    generator = torch.Generator().manual_seed(1)
    has_signal = torch.rand(3, 20000, groups, generator=generator) < EXPECTED.signal
    without_signal, sampled, rounds = torch.ones(20000, groups, dtype=torch.bool), 0.0, 0.0
    for round_number in range(3):
        sampled += without_signal.float().sum(1).mean().item()
        rounds += without_signal.any(1).float().mean().item()
        without_signal &= ~has_signal[round_number]
    assert estimate_sampling_rounds(spec, EXPECTED) == pytest.approx((rounds, sampled), rel=0.02)
    assert estimate_trained_share(spec, EXPECTED) == pytest.approx(
        1 - without_signal.float().mean().item(), rel=0.01
    )


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_longest_completion_agrees_with_simulated_lengths(spread):
    """The spread is the standard deviation divided by the mean."""
    rng = np.random.default_rng(0)
    lengths = 200 * (1 - spread + spread * rng.exponential(size=(20000, 16)))
    assert lengths.std() / lengths.mean() == pytest.approx(spread, rel=0.01)
    expected = Expected(limit=20000, length=200, spread=spread)
    assert expected.estimate_longest(16) == pytest.approx(lengths.max(1).mean(), rel=0.01)
    assert expected.estimate_longest(1) == pytest.approx(200)


def test_longest_completion_grows_with_the_batch_up_to_the_limit():
    expected = Expected(limit=2048, length=512, spread=1.0)
    longest = [expected.estimate_longest(n) for n in (1, 2, 4, 8, 64, 512, 10**6)]
    assert longest == sorted(longest) and longest[-1] == 2048
    assert expect(512, {"length": 900.0}, {}).estimate_longest(1) == 512
