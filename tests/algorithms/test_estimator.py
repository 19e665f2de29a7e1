"""The mean of rapid_loss's estimate, by enumeration of all groups, to 1e-12.

`python -m tests.algorithms.tabular` prints the biases.
"""

import math

import pytest
import torch

from rapid.algorithms.groups import group_mean
from tests.algorithms.tabular import (
    DEGREES,
    ETAS,
    build_problem,
    expected_gradient,
    outcome_logp,
    render_table,
    score_mean,
    true_gradient,
)

staleness = pytest.mark.parametrize("staleness", DEGREES.values())
group_size = pytest.mark.parametrize("group_size", [2, 3])
clip = pytest.mark.parametrize("clip", ["advantage", "both"])
eta = pytest.mark.parametrize("eta", [*ETAS, math.inf])


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_the_table_of_biases_has_a_row_for_each_setting():
    assert len(render_table().splitlines()) == len(DEGREES) * (4 + 2 * (1 + 2 * len(ETAS))) - 1


def test_the_true_gradient_is_that_of_finite_differences():
    """The yardstick itself: J is summed over outcomes, not estimated."""
    p, step = build_problem(0.0), 1e-6
    gradient = true_gradient(p)

    def value(pi):
        return (outcome_logp(pi).sum(-1).exp() * p.rewards).sum(1).mean()

    for i in range(p.pi.numel()):
        move = torch.zeros_like(p.pi)
        move.view(-1)[i] = step
        slope = (value(p.pi + move) - value(p.pi - move)) / (2 * step)
        assert gradient.view(-1)[i].item() == pytest.approx(slope.item(), abs=1e-9)


# Unbiased -----------------------------------------------------------------------------------------


@staleness
@group_size
@eta
def test_leave_one_out_clipped_in_the_advantage_is_unbiased_at_any_eta(staleness, group_size, eta):
    """A baseline of other completions, clipped or not, multiplies E[w grad log pi] = 0."""
    p = build_problem(staleness)
    mean = expected_gradient(p, group_size, eta=eta, clip="advantage", baseline="others")
    assert_same(mean, true_gradient(p))


# Biased, by exactly this much ---------------------------------------------------------------------


@staleness
@group_size
@eta
def test_plain_clipped_in_the_advantage_lacks_the_clipped_own_term(staleness, group_size, eta):
    """E = grad J - 1/N_k E_mu[w min(w, eta) R grad log pi]: n's own share of its baseline."""
    p = build_problem(staleness)
    own_term = score_mean(p, p.weight * p.weight.clamp(max=eta) * p.rewards) / group_size
    mean = expected_gradient(p, group_size, eta=eta, clip="advantage")
    assert_same(mean, true_gradient(p) - own_term)


@staleness
@group_size
def test_an_unweighted_baseline_only_shrinks_the_unclipped_estimate(staleness, group_size):
    """E = (1 - 1/N_k) grad J, however stale: GRPOTrainer's advantages times the weights."""

    def weighted_pg(logp, behavior_logp, mask, rewards, group_size):
        weight = (logp - behavior_logp).detach().sum(1).exp()
        advantages = rewards - group_mean(rewards, group_size)
        return -(weight * advantages * logp.sum(1)).mean(), {}

    p = build_problem(staleness)
    mean = expected_gradient(p, group_size, loss=weighted_pg)
    assert_same(mean, (1 - 1 / group_size) * true_gradient(p))


@staleness
@group_size
@eta
@pytest.mark.parametrize("baseline", ["group", "others"])
def test_clipped_in_both_is_the_gradient_of_the_clipped_weights(
    staleness, group_size, eta, baseline
):
    """c = min(w, eta), V = E_mu[c R]:

    leave-one-out  E = E_mu[c (R - V) grad log pi]
    plain          E = E_mu[c (R - (N_k - 1) / N_k V - c R / N_k) grad log pi]
    """
    p = build_problem(staleness)
    c = p.weight.clamp(max=eta)
    value = (p.probability * c * p.rewards).sum(1, keepdim=True)
    if baseline == "group":
        value = ((group_size - 1) * value + c * p.rewards) / group_size
    mean = expected_gradient(p, group_size, eta=eta, clip="both", baseline=baseline)
    assert_same(mean, score_mean(p, c * (p.rewards - value)))


# Groups that are not whole ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_keeping_part_of_a_group_would_turn_the_gradient_and_leaving_it_out_does_not(seed):
    """30 % of rewards are missing by chance; fewer completions have a baseline of more bias.

    Without the groups where one is missing, the mean is that of whole groups, times a number.
    """
    p, missing, group_size = build_problem(DEGREES["stale"], seed), 0.3, 3
    true = true_gradient(p).flatten()
    mean = {
        n: expected_gradient(p, n, eta=2.0, clip="advantage").flatten() for n in (1, 2, group_size)
    }
    chances = {
        n: math.comb(group_size, n)
        * (1 - missing) ** n
        * missing ** (group_size - n)
        * n
        / group_size
        for n in mean
    }
    kept_mean = sum(chances[n] * mean[n] for n in mean)
    left_out, kept_mean = (
        torch.cosine_similarity(gradient, true, dim=0) for gradient in (mean[group_size], kept_mean)
    )
    print(f"cosine with the true gradient: left out {left_out:.2f}, kept {kept_mean:.2f}")
    assert kept_mean < left_out - 0.05
