"""Objectives that TRL has not: against plain loops of numbers, and against exact gradients."""

import math

import pytest
import torch

from rapid.algorithms import ALGORITHMS, CURRENT
from rapid.algorithms.base import LossInputs
from rapid.algorithms.dppo import DppoParameters
from rapid.algorithms.m2po import find_outliers as outliers_of
from rapid.algorithms.tis import TisParameters, tis_loss
from rapid.algorithms.topr import topr_loss
from tests.algorithms.tabular import (
    DEGREES,
    build_problem,
    expected_gradient,
    outcome_logp,
    score_mean,
)

GROUP_SIZE = 4
LENGTHS = [5, 3, 0, 4, 1, 5, 2, 5, 5, 4, 3, 2]
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.25, 0.75, 0.5, 0.5, 1.0, 1.0, 1.0, 0.0]  # some are the mean


def draw_batch(seed: int) -> LossInputs:
    """Return completions of up to 5 tokens, some of which have moved far."""
    generator = torch.Generator().manual_seed(seed)
    shape = len(LENGTHS), 5
    logp = -0.05 - 3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    far = 1 + 3 * (torch.rand(shape, generator=generator) < 0.3)
    moved = 0.4 * far * torch.randn(shape, generator=generator, dtype=torch.float64)
    behavior_logp = (logp - moved).clamp(max=-0.01)
    mask = (torch.arange(5) < torch.tensor(LENGTHS)[:, None]).double()
    rewards = torch.tensor(REWARDS, dtype=torch.float64)
    return LossInputs(
        logp.requires_grad_(), behavior_logp, behavior_logp, mask, rewards, GROUP_SIZE
    )


def compute_advantages(standardized: bool) -> list[float]:
    advantages = []
    for start in range(0, len(REWARDS), GROUP_SIZE):
        group = REWARDS[start : start + GROUP_SIZE]
        mean = sum(group) / GROUP_SIZE
        std = math.sqrt(sum((r - mean) ** 2 for r in group) / (GROUP_SIZE - 1)) + 1e-4
        advantages += [(r - mean) / (std if standardized else 1) for r in group]
    return advantages


def find_outliers_by_hand(squares: list[tuple[float, int]]) -> set[int]:
    """Return the tokens that M2PO leaves out: the largest, until the mean is at most 0.04."""
    kept_tokens = sorted(squares)
    while kept_tokens and sum(square for square, _ in kept_tokens) / len(kept_tokens) > 0.04:
        kept_tokens.pop()
    return {token for _, token in squares} - {token for _, token in kept_tokens}


def compute_gradient_by_hand(name: str, inputs: LossInputs) -> tuple[list[list[float]], float]:
    """Return the gradient by token, of the published defaults, and the share that is clipped."""
    logp, mu = inputs.logp.tolist(), inputs.behavior_logp.tolist()
    gradient = [[0.0] * 5 for _ in LENGTHS]
    clipped, left_out = 0, set()
    advantages = compute_advantages(standardized=name == "m2po")
    for start in range(0, len(LENGTHS), GROUP_SIZE):
        harmful = [
            ((logp[n][t] - mu[n][t]) ** 2, (n, t))
            for n in range(start, start + GROUP_SIZE)
            for t in range(LENGTHS[n])
            if advantages[n] * (logp[n][t] - mu[n][t]) > 0
        ]
        left_out |= find_outliers_by_hand(harmful)
    for n, length in enumerate(LENGTHS):
        A, N = advantages[n], len(LENGTHS)
        weight = math.exp(sum(logp[n][t] - mu[n][t] for t in range(length)))
        for t in range(length):
            ratio = math.exp(logp[n][t] - mu[n][t])
            change = math.exp(logp[n][t]) - math.exp(mu[n][t])
            match name:
                case "rloo":
                    factor, cut, divisor = GROUP_SIZE / (GROUP_SIZE - 1), False, N
                case "tis":
                    factor, cut, divisor = min(ratio, 2.0), ratio > 2, N
                case "dppo":
                    cut = (A > 0 and change > 0.2) or (A < 0 and change < -0.2)
                    factor, divisor = (0 if cut else min(ratio, 5.0)), N
                case "topr":
                    cut = t == 0 and A < 0 and weight > 1  # of completions
                    factor, divisor = (1 if A >= 0 else min(weight, 1)), N
                case "m2po":
                    cut = (n, t) in left_out
                    factor, divisor = (0 if cut else ratio), sum(LENGTHS)
            gradient[n][t] = -factor * A / divisor
            clipped += cut
    return gradient, clipped / (len(LENGTHS) if name == "topr" else sum(LENGTHS))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["rloo", "tis", "dppo", "topr", "m2po"])
def test_the_gradient_is_that_of_the_closed_form(name, seed):
    algorithm, inputs = ALGORITHMS[name], draw_batch(seed)
    kind = algorithm.parameters
    loss, metrics = algorithm.loss(kind and kind(), inputs)
    loss.backward()
    expected, clipped = compute_gradient_by_hand(name, inputs)
    torch.testing.assert_close(inputs.logp.grad, torch.tensor(expected).double(), rtol=0, atol=1e-7)
    if name != "rloo":
        assert 0 < metrics["clip_fraction"].item() == pytest.approx(clipped)


def test_weights_and_staleness_are_means_over_completions():
    """Also over those that have no advantage, and over one without tokens, whose weight is 1."""
    inputs = draw_batch(4)
    moved = ((inputs.logp - inputs.behavior_logp) * inputs.mask).sum(1).tolist()
    stale = ALGORITHMS["pg"].loss(None, inputs._replace(H=2))[1]["staleness"]
    assert stale.item() == pytest.approx(sum(map(abs, moved)) / len(moved))
    kernels = {  # by the published defaults
        "topr": lambda w, A: 1 if A >= 0 else min(w, 1),
        "vespo": lambda w, A: (
            w**2 * math.exp(3 * (1 - w)) if A > 0 else w**3 * math.exp(2 * (1 - w))
        ),
    }
    for name, kernel in kernels.items():
        algorithm = ALGORITHMS[name]
        mean_weight = algorithm.loss(algorithm.parameters(), inputs)[1]["weight"].item()
        pairs = zip(map(math.exp, moved), compute_advantages(standardized=True), strict=True)
        assert mean_weight == pytest.approx(sum(kernel(*pair) for pair in pairs) / len(moved))


def test_values_at_a_bound_are_not_clipped():
    log_ratio = torch.tensor([[0.5, -0.5], [0.5, 1.0]])
    left_out = outliers_of(log_ratio, log_ratio.bool(), group_size=1, tau=0.25)
    assert left_out.tolist() == [[False, False], [False, True]]
    # Weights at their cap are not cut, and no probability moves by more than 1.
    inputs = draw_batch(5)
    on_policy = inputs._replace(behavior_logp=inputs.logp.detach())
    assert ALGORITHMS["tis"].loss(TisParameters(cap=1.0), on_policy)[1]["clip_fraction"] == 0
    sure = inputs._replace(logp=torch.zeros(12, 5), behavior_logp=torch.full((12, 5), -math.inf))
    assert ALGORITHMS["dppo"].loss(DppoParameters(divergence=1), sure)[1]["clip_fraction"] == 0


def test_an_objective_does_not_depend_on_micro_batches():
    """Means over passes of whole groups, by their shares, are the mean over the step."""
    for algorithm in CURRENT:
        inputs = draw_batch(3)
        settings = algorithm.parameters and algorithm.parameters()
        total = torch.zeros((), dtype=torch.float64)
        for start in range(0, len(LENGTHS), GROUP_SIZE):
            rows = slice(start, start + GROUP_SIZE)
            part = LossInputs(*(tensor[rows] for tensor in inputs[:5]), GROUP_SIZE)
            share = {"sequence": GROUP_SIZE / len(LENGTHS), "token": part.mask.sum() / sum(LENGTHS)}
            total = total + algorithm.loss(settings, part)[0] * share[algorithm.mean_over]
        loss = algorithm.loss(settings, inputs)[0]
        gradient, expected = (torch.autograd.grad(value, inputs.logp)[0] for value in (total, loss))
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-15)


# By enumeration -----------------------------------------------------------------------------------


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cap", [1.2, math.inf])
@pytest.mark.parametrize("staleness", DEGREES.values())
def test_token_weights(staleness, cap):
    """E = (1 - 1/N_k) E_mu[(R - V) sum_t min(r, cap) grad log pi_t], V = E_mu[R]."""
    p = build_problem(staleness)
    ratios = (outcome_logp(p.pi) - outcome_logp(p.mu)).exp().clamp(max=cap)  # of each token
    value = (p.probability * p.rewards).sum(1, keepdim=True)
    expected = score_mean(p, (p.rewards - value)[..., None] * ratios) * 2 / 3
    assert_same(expected_gradient(p, 3, loss=tis_loss, cap=cap), expected)


@pytest.mark.parametrize("offset", [0.2, 0.5])
def test_tapered_weights_off_policy(offset):
    """E = E_mu[c (R - offset) grad log pi], c = min(w, 1) where R < offset, else 1."""
    p = build_problem(DEGREES["very stale"])
    taper = torch.where(p.rewards < offset, p.weight.clamp(max=1), 1.0)
    expected = score_mean(p, taper * (p.rewards - offset))
    assert_same(expected_gradient(p, 1, loss=topr_loss, offset=offset), expected)
