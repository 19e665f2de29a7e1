"""Which groups are run and drawn anew, by the objectives' own rule; the longest completion."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rapid.algorithms.names import parse
from rapid.cost.expected import Expected
from rapid.cost.work import rounds, run_share
from tests.cost.conftest import EXPECTED, spec_of


@pytest.fixture(scope="module")
def rewards() -> torch.Tensor:
    """Of 20000 groups of 4 whose solve rates differ, (20000, 4)."""
    generator = torch.Generator().manual_seed(0)
    rates = torch.rand(20000, 1, generator=generator) ** 2
    return (torch.rand(20000, 4, generator=generator) < rates).float()


@pytest.fixture(scope="module")
def drawn(rewards) -> Expected:
    """What is to be expected of them."""
    mixed = (rewards != rewards[:, :1]).any(1).float().mean().item()
    some = (rewards > 0).any(1).float().mean().item()
    return replace(EXPECTED, signal=mixed, rewarded=some)


@pytest.mark.parametrize(
    "name", ["pg", "pg-H2", "grpo", "grpo-H4", "rapid-H4", "rapid-H16", "rapid-H4,weighted=false",
             "rapid-H4,baseline=none", "rapid-H4,eta=0.5"],
)  # fmt: skip
def test_the_share_that_is_run_is_the_objectives(params, rewards, drawn, name):
    spec = spec_of(params, name)
    contributes = parse(name).algorithm.contributes
    shares = [
        contributes(rewards.flatten(), 4, spec.objective, on_policy=step == 0).float().mean()
        for step in range(spec.H)
    ]
    assert run_share(spec, drawn) == pytest.approx(sum(shares).item() / spec.H, abs=1e-6)


@pytest.mark.parametrize(("groups", "n_step", "H"), [(1, 4, 1), (8, 32, 1), (8, 4, 8)])
def test_dapo_draws_as_many_groups_as_in_a_simulation(params, groups, n_step, H):
    spec = spec_of(params, "dapo").model_copy(update={"n_step": n_step, "H": H})
    generator = torch.Generator().manual_seed(1)
    alive = torch.rand(3, 20000, groups, generator=generator) < EXPECTED.signal
    dead, drawn, calls = torch.ones(20000, groups, dtype=torch.bool), 0.0, 0.0
    for number in range(3):
        drawn += dead.float().sum(1).mean().item()
        calls += dead.any(1).float().mean().item()
        dead &= ~alive[number]
    found = rounds(spec, EXPECTED)
    assert sum(probability for probability, _ in found) == pytest.approx(calls, rel=0.02)
    sampled = sum(probability * groups for probability, groups in found)
    assert sampled == pytest.approx(drawn, rel=0.02)
    assert run_share(spec, EXPECTED) == pytest.approx(1 - dead.float().mean().item(), rel=0.01)


def test_with_a_signal_in_every_group_dapo_draws_once(params):
    assert len(rounds(spec_of(params, "dapo"), replace(EXPECTED, signal=1.0))) == 1


# The longest of a batch of completions ----------------------------------------------------------


def test_lengths_without_spread_are_all_alike():
    assert Expected(limit=80, length=30, spread=0).longest(1000) == 30


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("mean", [20, 512, 1500, 2000])
def test_the_longest_of_one_is_the_mean(mean, spread):
    assert Expected(2048, mean, spread).longest(1) == pytest.approx(mean, rel=1e-3)


def test_memoryless_lengths_far_from_the_limit_have_the_harmonic_longest():
    """E max of n exponentials = mean x (1 + 1/2 + ... + 1/n)."""
    lengths = Expected(limit=20000, length=200, spread=1.0)
    assert lengths.longest(4) == pytest.approx(200 * (1 + 1 / 2 + 1 / 3 + 1 / 4), rel=1e-3)


def test_the_longest_grows_with_the_batch_and_ends_at_the_limit():
    lengths = Expected(limit=2048, length=512, spread=1.0)
    found = [lengths.longest(n) for n in (1, 2, 4, 8, 64, 512, 10**6)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(2048, abs=1)


def test_the_longest_agrees_with_drawn_lengths():
    rng = np.random.default_rng(0)
    drawn = np.minimum(rng.gamma(4, 100, (20000, 16)), 600)  # spread 0.5
    lengths = Expected(limit=600, length=drawn.mean(), spread=0.5)
    assert lengths.longest(16) == pytest.approx(drawn.max(1).mean(), rel=0.01)
