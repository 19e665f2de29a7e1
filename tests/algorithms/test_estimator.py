"""The expectation of rapid_loss's estimate, enumerated over all groups, matches formulas."""

import math

import pytest
import torch

from rapid.algorithms.groups import group_mean
from tests.algorithms.tabular import (
    ETAS,
    STALENESS_LEVELS,
    assert_same_gradient,
    build_problem,
    compute_expected_gradient,
    compute_outcome_logps,
    compute_score_mean,
    compute_true_gradient,
)

each_staleness = pytest.mark.parametrize("staleness", STALENESS_LEVELS.values())
each_group_size = pytest.mark.parametrize("group_size", [2, 3])
each_clip = pytest.mark.parametrize("clip", ["advantage", "both"])
each_eta = pytest.mark.parametrize("eta", [*ETAS, math.inf])


def test_true_gradient_matches_finite_differences():
    """Other tests compare with this gradient. J is a sum over outcomes, not an estimate."""
    problem, step = build_problem(0.0), 1e-6
    gradient = compute_true_gradient(problem)

    def compute_value(pi):
        return (compute_outcome_logps(pi).sum(-1).exp() * problem.rewards).sum(1).mean()

    for i in range(problem.pi.numel()):
        move = torch.zeros_like(problem.pi)
        move.view(-1)[i] = step
        slope = (compute_value(problem.pi + move) - compute_value(problem.pi - move)) / (2 * step)
        assert gradient.view(-1)[i].item() == pytest.approx(slope.item(), abs=1e-9)


# Unbiased -----------------------------------------------------------------------------------------


@each_staleness
@each_group_size
@each_eta
def test_leave_one_out_clipped_in_advantage_is_unbiased(staleness, group_size, eta):
    """A baseline from other completions, clipped or not, multiplies E[w grad log pi] = 0."""
    problem = build_problem(staleness)
    mean = compute_expected_gradient(
        problem, group_size, eta=eta, clip="advantage", baseline="others"
    )
    assert_same_gradient(mean, compute_true_gradient(problem))


# Known biases -------------------------------------------------------------------------------------


@each_staleness
@each_group_size
@each_eta
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_group_baseline_clipped_in_advantage_has_own_term_bias(staleness, group_size, eta, scale):
    """E = grad J - scale/N_k E_mu[w min(w, eta) R grad log pi], the own term in the baseline."""
    problem = build_problem(staleness)
    values = problem.weight * problem.weight.clamp(max=eta) * problem.rewards
    own_term = scale * compute_score_mean(problem, values) / group_size
    mean = compute_expected_gradient(
        problem, group_size, eta=eta, clip="advantage", baseline_scale=scale
    )
    assert_same_gradient(mean, compute_true_gradient(problem) - own_term)


@each_staleness
@each_group_size
@pytest.mark.parametrize("scale", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("baseline", ["group", "others"])
def test_unweighted_gradient_follows_the_baseline_in_expectation(
    staleness, group_size, scale, baseline
):
    """E = E_mu[(R - scale V) grad log pi], V = E_mu[R]; "group" has R/N_k in place of V/N_k.

    This is the update of AsymRE (2506.20520) with the baseline scale V.
    """
    problem = build_problem(staleness)
    value = (problem.probability * problem.rewards).sum(1, keepdim=True)
    if baseline == "group":
        value = ((group_size - 1) * value + problem.rewards) / group_size
    mean = compute_expected_gradient(
        problem, group_size, eta=2.0, weighted=False, baseline=baseline, baseline_scale=scale
    )
    assert_same_gradient(mean, compute_score_mean(problem, problem.rewards - scale * value))


@each_staleness
@each_group_size
def test_unweighted_baseline_scales_unclipped_gradient(staleness, group_size):
    """E = (1 - 1/N_k) grad J for any staleness: GRPOTrainer's advantages times the weights."""

    def weighted_pg(logp, behavior_logp, mask, rewards, group_size):
        weight = (logp - behavior_logp).detach().sum(1).exp()
        advantages = rewards - group_mean(rewards, group_size)
        return -(weight * advantages * logp.sum(1)).mean(), {}

    problem = build_problem(staleness)
    mean = compute_expected_gradient(problem, group_size, loss=weighted_pg)
    assert_same_gradient(mean, (1 - 1 / group_size) * compute_true_gradient(problem))


@each_staleness
@each_group_size
@each_eta
@pytest.mark.parametrize("baseline", ["group", "others"])
def test_clipping_in_both_gives_gradient_of_clipped_weights(staleness, group_size, eta, baseline):
    """c = min(w, eta), V = E_mu[c R]:

    leave-one-out  E = E_mu[c (R - V) grad log pi]
    plain          E = E_mu[c (R - (N_k - 1) / N_k V - c R / N_k) grad log pi]
    """
    problem = build_problem(staleness)
    c = problem.weight.clamp(max=eta)
    value = (problem.probability * c * problem.rewards).sum(1, keepdim=True)
    if baseline == "group":
        value = ((group_size - 1) * value + c * problem.rewards) / group_size
    mean = compute_expected_gradient(problem, group_size, eta=eta, clip="both", baseline=baseline)
    assert_same_gradient(mean, compute_score_mean(problem, c * (problem.rewards - value)))
