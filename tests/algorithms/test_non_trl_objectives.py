"""Objectives that TRL lacks match plain Python loops and exact gradients of a small policy."""

import math

import pytest
import torch

from rapid.algorithms import ALGORITHMS
from rapid.algorithms.base import LossInputs
from rapid.algorithms.dppo import DppoParameters
from rapid.algorithms.m2po import find_outliers
from rapid.algorithms.tis import TisParameters, tis_loss
from rapid.algorithms.topr import topr_loss
from tests.algorithms.batches import GROUP_SIZE, LENGTHS, compute_advantages, draw_batch
from tests.algorithms.tabular import (
    STALENESS_LEVELS,
    assert_same_gradient,
    build_problem,
    compute_expected_gradient,
    compute_outcome_logps,
    compute_score_mean,
)


def find_outliers_by_hand(squares: list[tuple[float, int]]) -> set[int]:
    """Return the tokens that M2PO drops: the largest squares, until the mean is at most 0.04."""
    kept_tokens = sorted(squares)
    while kept_tokens and sum(square for square, _ in kept_tokens) / len(kept_tokens) > 0.04:
        kept_tokens.pop()
    return {token for _, token in squares} - {token for _, token in kept_tokens}


def compute_gradient_by_hand(name: str, inputs: LossInputs) -> tuple[list[list[float]], float]:
    """Return the gradient by token with published defaults, and the fraction that is clipped."""
    logp, behavior_logp = inputs.logp.tolist(), inputs.behavior_logp.tolist()
    gradient = [[0.0] * 5 for _ in LENGTHS]
    clipped_count, outliers = 0, set()
    advantages = compute_advantages(standardized=name == "m2po")
    for start in range(0, len(LENGTHS), GROUP_SIZE):
        candidates = [
            ((logp[n][t] - behavior_logp[n][t]) ** 2, (n, t))
            for n in range(start, start + GROUP_SIZE)
            for t in range(LENGTHS[n])
            if advantages[n] * (logp[n][t] - behavior_logp[n][t]) > 0
        ]
        outliers |= find_outliers_by_hand(candidates)
    for n, length in enumerate(LENGTHS):
        A, N = advantages[n], len(LENGTHS)
        weight = math.exp(sum(logp[n][t] - behavior_logp[n][t] for t in range(length)))
        for t in range(length):
            ratio = math.exp(logp[n][t] - behavior_logp[n][t])
            change = math.exp(logp[n][t]) - math.exp(behavior_logp[n][t])
            match name:
                case "rloo":
                    factor, is_clipped, divisor = GROUP_SIZE / (GROUP_SIZE - 1), False, N
                case "tis":
                    factor, is_clipped, divisor = min(ratio, 2.0), ratio > 2, N
                case "dppo":
                    is_clipped = (A > 0 and change > 0.2) or (A < 0 and change < -0.2)
                    factor, divisor = (0 if is_clipped else min(ratio, 5.0)), N
                case "topr":
                    is_clipped = t == 0 and A < 0 and weight > 1  # counted once per completion
                    factor, divisor = (1 if A >= 0 else min(weight, 1)), N
                case "m2po":
                    is_clipped = (n, t) in outliers
                    factor, divisor = (0 if is_clipped else ratio), sum(LENGTHS)
            gradient[n][t] = -factor * A / divisor
            clipped_count += is_clipped
    return gradient, clipped_count / (len(LENGTHS) if name == "topr" else sum(LENGTHS))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["rloo", "tis", "dppo", "topr", "m2po"])
def test_gradient_matches_closed_form(name, seed):
    algorithm, inputs = ALGORITHMS[name], draw_batch(seed)
    parameter_class = algorithm.parameters
    loss, metrics = algorithm.loss(parameter_class and parameter_class(), inputs)
    loss.backward()
    expected, clip_fraction = compute_gradient_by_hand(name, inputs)
    torch.testing.assert_close(inputs.logp.grad, torch.tensor(expected).double(), rtol=0, atol=1e-7)
    if name != "rloo":
        assert 0 < metrics["clip_fraction"].item() == pytest.approx(clip_fraction)


def test_weights_and_staleness_are_means_over_completions():
    """Completions without advantage count, and one without tokens, whose weight is 1."""
    inputs = draw_batch(4)
    log_weights = ((inputs.logp - inputs.behavior_logp) * inputs.mask).sum(1).tolist()
    staleness = ALGORITHMS["pg"].loss(None, inputs._replace(H=2))[1]["staleness"]
    assert staleness.item() == pytest.approx(sum(map(abs, log_weights)) / len(log_weights))
    kernels = {  # with published defaults
        "topr": lambda w, A: 1 if A >= 0 else min(w, 1),
        "vespo": lambda w, A: (
            w**2 * math.exp(3 * (1 - w)) if A > 0 else w**3 * math.exp(2 * (1 - w))
        ),
    }
    for name, kernel in kernels.items():
        algorithm = ALGORITHMS[name]
        mean_weight = algorithm.loss(algorithm.parameters(), inputs)[1]["weight"].item()
        pairs = zip(map(math.exp, log_weights), compute_advantages(standardized=True), strict=True)
        assert mean_weight == pytest.approx(sum(kernel(*pair) for pair in pairs) / len(log_weights))


def test_values_at_a_bound_are_not_clipped():
    log_ratio = torch.tensor([[0.5, -0.5], [0.5, 1.0]])
    outliers = find_outliers(log_ratio, log_ratio.bool(), group_size=1, tau=0.25)
    assert outliers.tolist() == [[False, False], [False, True]]
    # A weight at its cap is not clipped, and no probability changes by more than 1.
    inputs = draw_batch(5)
    on_policy = inputs._replace(behavior_logp=inputs.logp.detach())
    assert ALGORITHMS["tis"].loss(TisParameters(cap=1.0), on_policy)[1]["clip_fraction"] == 0
    certain = inputs._replace(logp=torch.zeros(12, 5), behavior_logp=torch.full((12, 5), -math.inf))
    assert ALGORITHMS["dppo"].loss(DppoParameters(divergence=1), certain)[1]["clip_fraction"] == 0


# By enumeration -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [1.2, math.inf])
@pytest.mark.parametrize("staleness", STALENESS_LEVELS.values())
def test_tis_gradient_is_that_of_capped_token_weights(staleness, cap):
    """E = (1 - 1/N_k) E_mu[(R - V) sum_t min(r, cap) grad log pi_t], V = E_mu[R]."""
    problem = build_problem(staleness)
    log_ratios = compute_outcome_logps(problem.pi) - compute_outcome_logps(
        problem.mu
    )  # of each token
    ratios = log_ratios.exp().clamp(max=cap)
    value = (problem.probability * problem.rewards).sum(1, keepdim=True)
    expected = compute_score_mean(problem, (problem.rewards - value)[..., None] * ratios) * 2 / 3
    assert_same_gradient(compute_expected_gradient(problem, 3, loss=tis_loss, cap=cap), expected)


@pytest.mark.parametrize("offset", [0.2, 0.5])
def test_topr_gradient_is_that_of_tapered_weights(offset):
    """E = E_mu[c (R - offset) grad log pi], c = min(w, 1) where R < offset, else 1."""
    problem = build_problem(STALENESS_LEVELS["very stale"])
    taper = torch.where(problem.rewards < offset, problem.weight.clamp(max=1), 1.0)
    expected = compute_score_mean(problem, taper * (problem.rewards - offset))
    assert_same_gradient(
        compute_expected_gradient(problem, 1, loss=topr_loss, offset=offset), expected
    )
