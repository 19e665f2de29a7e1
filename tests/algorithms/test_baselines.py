"""pg, grpo and dapo against hand-computed numbers."""

import math

import pytest
import torch

from rapid.algorithms import dapo_loss, grpo_loss, pg_loss

ONES = torch.ones(2, 2, dtype=torch.float64)
REWARDS = torch.tensor([1.0, 0.0], dtype=torch.float64)
STD = math.sqrt(0.5) + 1e-4  # sample standard deviation of (1, 0), and TRL's floor


def log_probabilities(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_pg_by_hand():
    logp = log_probabilities([-1.0, -2.0], [-3.0, -4.0])
    loss, metrics = pg_loss(logp, ONES, REWARDS, 2)
    assert loss.item() == pytest.approx(-(0.5 * -3 + -0.5 * -7) / 2)
    loss.backward()
    assert logp.grad.flatten().tolist() == pytest.approx([-0.25, -0.25, 0.25, 0.25])
    assert metrics == {}


def test_pg_leaves_a_group_of_equal_rewards_alone():
    logp = log_probabilities([-1.0, -2.0], [-3.0, -4.0])
    pg_loss(logp, ONES, torch.ones(2, dtype=torch.float64), 2)[0].backward()
    assert not logp.grad.any()


def test_grpo_by_hand():
    logp = log_probabilities([-1.0, -1.0], [-1.0, -1.0])
    # Token ratios 1.5 and 1 in the first completion, 1 and 0.5 in the second.
    behavior_logp = logp.detach() - torch.tensor([[1.5, 1.0], [1.0, 0.5]]).double().log()
    reference_logp = logp.detach() - math.log(2)
    loss, metrics = grpo_loss(
        logp, behavior_logp, reference_logp, ONES, REWARDS, 2, beta=0.1, epsilon=0.2
    )
    a = 0.5 / STD
    kl = 0.5 + math.log(2) - 1
    surrogate = -(1.2 * a + 1.0 * a) / 2, -(-1.0 * a - 0.8 * a) / 2
    assert loss.item() == pytest.approx(sum(surrogate) / 2 + 0.1 * kl)
    assert metrics["clip_fraction"].item() == 0.5
    assert metrics["kl"].item() == pytest.approx(kl)


def test_grpo_counts_a_completion_by_the_mean_of_its_tokens():
    logp = log_probabilities([-1.0, -1.0], [-1.0, -1.0])
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    same = logp.detach()
    grpo_loss(logp, same, same, mask, REWARDS, 2, beta=0.0, epsilon=0.2)[0].backward()
    a = 0.5 / STD
    assert logp.grad.flatten().tolist() == pytest.approx([-a / 4, -a / 4, a / 2, 0])


def test_dapo_averages_over_tokens_and_clips_higher():
    logp = log_probabilities([-1.0, -1.0], [-1.0, -1.0])
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    behavior_logp = logp.detach() - torch.tensor([[1.5, 1.25], [0.5, 1.0]]).double().log()
    loss, metrics = dapo_loss(
        logp, behavior_logp, mask, REWARDS, 2, epsilon_low=0.2, epsilon_high=0.28
    )
    a = 0.5 / STD
    assert loss.item() == pytest.approx(-(1.28 * a + 1.25 * a - 0.8 * a) / 3)
    assert metrics["clip_fraction"].item() == pytest.approx(2 / 3)
    loss.backward()
    assert logp.grad.flatten().tolist() == pytest.approx([0, -1.25 * a / 3, 0, 0])
