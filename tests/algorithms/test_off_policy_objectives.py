"""MaxRL, AsymRE, DRO, OAPL, VCPO and the geometric mask match loops and exact expectations."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from pydantic import ValidationError

from rapid.algorithms import ALGORITHMS
from rapid.algorithms.asymre import asymre_loss
from rapid.algorithms.base import LossInputs
from rapid.algorithms.dro import dro_loss
from rapid.algorithms.geo_mask import GeoMaskParameters, geo_mask_loss
from rapid.algorithms.maxrl import maxrl_loss
from rapid.algorithms.oapl import compute_optimal_advantages
from rapid.algorithms.vcpo import vcpo_loss
from tests.algorithms.batches import GROUP_SIZE, LENGTHS, REWARDS, compute_advantages, draw_batch
from tests.algorithms.tabular import (
    OUTCOMES,
    STALENESS_LEVELS,
    assert_same_gradient,
    build_problem,
    compute_expected_gradient,
    compute_outcome_logps,
    compute_score_mean,
)

SETTINGS = {
    "maxrl": {},
    "asymre": {"shift": -0.3},
    "dro": {"tau": 0.4},
    "oapl": {"beta_value": 0.5, "beta_policy": 0.3},
    "geo-mask": {"low": 0.8, "high": 1.2},
    "vcpo": {"cap": 1.5},
}
EACH_OBJECTIVE = pytest.mark.parametrize("name", SETTINGS)


def compute_loss(name: str, inputs: LossInputs, **changes):
    algorithm = ALGORITHMS[name]
    parameters = algorithm.parameters
    return algorithm.loss(parameters and parameters(**SETTINGS[name] | changes), inputs)


# By loops -----------------------------------------------------------------------------------------


def compute_factors_by_hand(name: str, inputs: LossInputs) -> list[float]:
    """Return for each completion the factor of grad log pi in N grad J."""
    log_ratio = ((inputs.logp - inputs.behavior_logp) * inputs.mask).sum(1).tolist()
    factors = []
    for n, length in enumerate(LENGTHS):
        start = n - n % GROUP_SIZE
        group = REWARDS[start : start + GROUP_SIZE]
        mean, A = sum(group) / GROUP_SIZE, compute_advantages(standardized=False)[n]
        match name:
            case "maxrl":
                factors.append(A / mean)
            case "asymre":
                factors.append(A + 0.3)
            case "dro":
                factors.append(A - 0.4 * log_ratio[n])
            case "oapl":
                value = 0.5 * math.log(sum(math.exp(r / 0.5) for r in group) / GROUP_SIZE)
                factors.append(-2 * 0.3 * (0.3 * log_ratio[n] - (REWARDS[n] - value)))
            case "geo-mask":
                per_token = math.exp(log_ratio[n] / max(length, 1))
                factors.append(A if 0.8 <= per_token <= 1.2 else 0.0)
            case "vcpo":
                factors.append(min(math.exp(log_ratio[n]), 1.5) * A)
    return factors


@pytest.mark.parametrize("seed", [0, 1])
@EACH_OBJECTIVE
def test_gradient_matches_closed_form(name, seed):
    inputs = draw_batch(seed)
    compute_loss(name, inputs)[0].backward()
    factors = torch.tensor(compute_factors_by_hand(name, inputs), dtype=torch.float64)
    expected = -factors[:, None] * inputs.mask / len(LENGTHS)
    torch.testing.assert_close(inputs.logp.grad, expected, rtol=0, atol=1e-12)


def test_values_of_losses_by_hand():
    """Two completions of two tokens in one group, log ratios 0.4 and -0.2, rewards 1 and 0."""
    behavior_logp = torch.tensor([[-1.0, -1.0], [-2.0, -1.0]], dtype=torch.float64)
    logp = behavior_logp + torch.tensor([[0.3, 0.1], [-0.2, 0.0]], dtype=torch.float64)
    rewards = torch.tensor([1.0, 0.0], dtype=torch.float64)
    inputs = LossInputs(logp, behavior_logp, logp, torch.ones(2, 2), rewards, 2)
    losses = {name: compute_loss(name, inputs)[0].item() for name in SETTINGS}
    assert losses["maxrl"] == pytest.approx(-(1 * -1.6 + -1 * -3.2) / 2)
    assert losses["asymre"] == pytest.approx(-(0.8 * -1.6 + -0.2 * -3.2) / 2)
    # tau / 2 l^2 - A l is 0.2 * 0.16 - 0.5 * 0.4 and 0.2 * 0.04 - 0.5 * 0.2
    assert losses["dro"] == pytest.approx((0.032 - 0.2 + 0.008 - 0.1) / 2)
    value = 0.5 * math.log((math.e**2 + 1) / 2)
    assert losses["oapl"] == pytest.approx(((0.12 - 1 + value) ** 2 + (-0.06 + value) ** 2) / 2)
    # Geometric means of token ratios are e^0.2 = 1.22, which is left out, and e^-0.1 = 0.90.
    assert losses["geo-mask"] == pytest.approx(-(-0.5 * -3.2) / 2)
    # Weights are e^0.4 = 1.49 and e^-0.2.
    assert losses["vcpo"] == pytest.approx(
        -(math.exp(0.4) * 0.5 * -1.6 + math.exp(-0.2) * -0.5 * -3.2) / 2
    )


# Special cases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [1e-4, 0.05, 1.0, 1e4])
def test_optimal_value_is_between_the_mean_and_the_largest_reward(beta):
    """No overflow for small beta, and advantages of exactly 0 for equal rewards."""
    rewards = torch.tensor([0.1, 0.1, 0.1, 0.7, -3.0, 0.2, 0.7, 0.7], dtype=torch.float64)
    advantages = compute_optimal_advantages(rewards, 4, beta)
    value = (rewards - advantages).view(2, 4)
    groups = rewards.view(2, 4)
    assert (value <= groups.max(1, keepdim=True).values + 1e-12).all()
    assert (value >= groups.mean(1, keepdim=True) - 1e-6).all()
    assert not compute_optimal_advantages(torch.full((4,), 0.1), 4, beta).any()


def test_geometric_mask_does_not_depend_on_length():
    """Ratios of 1.1 per token: the same decision for 1 and for 100 tokens; bounds are inclusive."""
    log_ratio = torch.full((2, 100), math.log(1.1), dtype=torch.float64)
    mask = (torch.arange(100) < torch.tensor([[1], [100]])).double()
    rewards = torch.tensor([1.0, 0.0], dtype=torch.float64)
    zeros = torch.zeros_like(log_ratio)
    for high, left_out in [(1.09, 1.0), (1.11, 0.0)]:
        metrics = geo_mask_loss(log_ratio, zeros, mask, rewards, 2, 0.9, high)[1]
        assert metrics["clip_fraction"] == left_out
    on_policy = geo_mask_loss(zeros, zeros, mask, rewards, 2, 1.0, 1.0)[1]
    assert on_policy["clip_fraction"] == 0


def test_share_of_completions_left_out():
    inputs = draw_batch(5)
    log_ratio = ((inputs.logp - inputs.behavior_logp) * inputs.mask).sum(1).tolist()
    per_token = [
        math.exp(value / max(length, 1)) for value, length in zip(log_ratio, LENGTHS, strict=True)
    ]
    left_out = sum(not 0.999 <= ratio <= 1.001 for ratio in per_token)
    metrics = ALGORITHMS["geo-mask"].loss(GeoMaskParameters(), inputs)[1]
    assert 0 < left_out < len(LENGTHS)
    assert metrics["clip_fraction"].item() == pytest.approx(left_out / len(LENGTHS))


@pytest.mark.parametrize("name", ["dro", "oapl"])
def test_staleness_is_the_mean_absolute_log_ratio(name):
    inputs = draw_batch(6)
    log_ratio = ((inputs.logp - inputs.behavior_logp) * inputs.mask).sum(1).tolist()
    staleness = compute_loss(name, inputs)[1]["staleness"]
    assert staleness.item() == pytest.approx(sum(map(abs, log_ratio)) / len(log_ratio))
    assert not staleness.requires_grad


def test_maxrl_does_not_divide_by_a_mean_of_zero():
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert ALGORITHMS["maxrl"].advantages(None, rewards, 2).tolist() == [1.0, -1.0, 0.0, 0.0]


@pytest.mark.parametrize("rewards", [[0.0, 0.0, -1.0, 0.0], [1.0, 1.0, -0.5, 3.0]])
def test_maxrl_refuses_negative_rewards(rewards):
    """Also if the mean of the group is positive: by chance it is not in another group."""
    zeros = torch.zeros(4, 3)
    inputs = LossInputs(zeros, zeros, zeros, zeros + 1, torch.tensor(rewards), group_size=2)
    for compute in (
        lambda: ALGORITHMS["maxrl"].advantages(None, inputs.rewards, 2),
        lambda: compute_loss("maxrl", inputs),
    ):
        with pytest.raises(ValueError, match=r"completion 1 of group 2 has the reward -.*at least"):
            compute()


# The effective sample size ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "scale"),
    [
        ([1.0, 1.0, 1.0, 1.0], 1.0),
        ([0.3, 0.3, 0.3, 0.3], 1.0),
        ([4.0, 0.0, 0.0, 0.0], 0.5),
        ([3.0, 1.0, 0.0, 0.0], math.sqrt(16 / 10 / 4)),
    ],
)
def test_step_scale_is_the_root_of_the_share_of_effective_completions(weights, scale):
    weights = torch.tensor(weights, dtype=torch.float64)
    logp = weights.clamp(min=1e-30).log()[:, None]
    inputs = LossInputs(logp, logp * 0, logp, torch.ones(4, 1), torch.arange(4.0), 4)
    means = {name: mean.item() for name, mean in compute_loss("vcpo", inputs)[1].items()}
    assert ALGORITHMS["vcpo"].step_scale(means) == pytest.approx(scale)
    assert means["clip_fraction"] == (weights > 1.5).double().mean()
    assert means["weight"] == pytest.approx(weights.mean().item())


@pytest.mark.parametrize("log_weight", [-500.0, 500.0])
def test_step_scale_of_extreme_weights_is_finite(log_weight):
    logp = torch.tensor([[log_weight], [0.0]])
    inputs = LossInputs(logp, logp * 0, logp, torch.ones(2, 1), torch.tensor([1.0, 0.0]), 2)
    loss, metrics = compute_loss("vcpo", inputs)
    means = {name: mean.item() for name, mean in metrics.items()}
    assert loss.isfinite() and all(map(math.isfinite, means.values()))
    assert ALGORITHMS["vcpo"].step_scale(means) == pytest.approx(math.sqrt(1 / 2))
    zeros = dict.fromkeys(means, 0.0)
    assert ALGORITHMS["vcpo"].step_scale(zeros) == 0


def test_rounding_does_not_make_a_step_longer():
    # The square of a mean is at most the mean of squares, but not after rounding to float32.
    assert ALGORITHMS["vcpo"].step_scale({"weight": 1.0000001, "squared_weight": 1.0}) == 1.0


def test_weight_at_the_cap_is_not_clipped():
    logp = torch.tensor([[0.0], [0.0], [0.0], [1.0]])
    inputs = LossInputs(logp, logp * 0, logp, torch.ones(4, 1), torch.arange(4.0), 4)
    assert compute_loss("vcpo", inputs, cap=1.0)[1]["clip_fraction"] == 1 / 4


@pytest.mark.parametrize("bounds", [{"low": 1.001}, {"low": 0.0}, {"high": 0.999}])
def test_bounds_of_the_mask_contain_1(bounds):
    with pytest.raises(ValidationError):
        GeoMaskParameters(**bounds)
    assert GeoMaskParameters(low=1.0, high=1.0)


# By enumeration -----------------------------------------------------------------------------------


def ignore_behavior_logp(loss):
    """Return a loss that ignores an argument for log mu."""
    return lambda logp, behavior_logp, *arguments, **named: loss(logp, *arguments, **named)


@pytest.mark.parametrize("shift", [-0.2, 0.3])
def test_asymre_gradient_is_that_of_a_shifted_baseline(shift):
    """E = (1 - 1/N_k) E_mu[(R - V) grad log pi] - shift E_mu[grad log pi], V = E_mu[R]."""
    problem = build_problem(STALENESS_LEVELS["stale"])
    value = (problem.probability * problem.rewards).sum(1, keepdim=True)
    expected = compute_score_mean(problem, 2 / 3 * (problem.rewards - value) - shift)
    loss = ignore_behavior_logp(partial(asymre_loss, shift=shift))
    assert_same_gradient(compute_expected_gradient(problem, 3, loss=loss), expected)


@pytest.mark.parametrize("staleness", STALENESS_LEVELS.values())
def test_dro_gradient_is_that_of_the_penalized_objective(staleness):
    """E = E_mu[((1 - 1/N_k) (R - V) - tau log(pi / mu)) grad log pi]."""
    problem = build_problem(staleness)
    value = (problem.probability * problem.rewards).sum(1, keepdim=True)
    factors = 2 / 3 * (problem.rewards - value) - 0.7 * problem.log_weight
    actual = compute_expected_gradient(problem, 3, loss=dro_loss, tau=0.7)
    assert_same_gradient(actual, compute_score_mean(problem, factors))


@pytest.mark.parametrize("cap", [1.2, math.inf])
def test_vcpo_gradient_is_that_of_truncated_weights(cap):
    """E = (1 - 1/N_k) E_mu[min(w, cap) (R - V) grad log pi], V = E_mu[R]."""
    problem = build_problem(STALENESS_LEVELS["stale"])
    value = (problem.probability * problem.rewards).sum(1, keepdim=True)
    expected = compute_score_mean(
        problem, 2 / 3 * problem.weight.clamp(max=cap) * (problem.rewards - value)
    )
    assert_same_gradient(compute_expected_gradient(problem, 3, loss=vcpo_loss, cap=cap), expected)


@pytest.mark.parametrize("group_size", [2, 3])
def test_maxrl_gradient_is_that_of_the_truncated_log_probability(group_size):
    """J = -sum over k < N_k of (1 - p)^k / k, p = E_pi[R]: the paper's series, with rewards 0, 1."""
    problem = build_problem(STALENESS_LEVELS["on-policy"])
    rewards = (torch.arange(OUTCOMES) % 3 == 0).double().expand_as(problem.rewards)
    problem = replace(problem, rewards=rewards)
    pi = problem.pi.clone().requires_grad_()
    p = (compute_outcome_logps(pi).sum(-1).exp() * rewards).sum(1)
    objective = -sum((1 - p) ** k / k for k in range(1, group_size)).mean()
    (expected,) = torch.autograd.grad(objective, pi)
    actual = compute_expected_gradient(problem, group_size, loss=ignore_behavior_logp(maxrl_loss))
    assert_same_gradient(actual, expected)


def test_oapl_has_no_gradient_at_the_optimal_policy():
    """pi with beta log(pi / mu) = R - V*: groups of all outcomes, each as often as under mu."""
    mu = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    rewards = torch.tensor([0.0, 1.0, 0.3], dtype=torch.float64)
    beta = 0.6
    pi = mu * (rewards / beta).exp()
    logp = (pi / pi.sum()).log().requires_grad_()
    outcomes = torch.tensor([0, 0, 1, 2])
    inputs = LossInputs(
        logp[outcomes, None], mu.log()[outcomes, None], logp, torch.ones(4, 1), rewards[outcomes], 4
    )
    loss, _ = compute_loss("oapl", inputs, beta_value=beta, beta_policy=beta)
    assert loss.item() == pytest.approx(0, abs=1e-24)
    (gradient,) = torch.autograd.grad(loss, logp)
    assert gradient.abs().max() < 1e-12
