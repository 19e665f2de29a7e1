"""rapid_loss with empty batches, equal rewards, groups of one and extreme weights."""

import math

import pytest
import torch

from rapid.algorithms import dapo_loss, grpo_loss, rapid_loss
from rapid.algorithms.means import completion_mean, token_mean

each_clip = pytest.mark.parametrize("clip", ["advantage", "both"])
each_baseline = pytest.mark.parametrize("baseline", ["group", "others"])


def compute_loss(
    log_weights, rewards, group_size, eta, *settings, lengths=None, dtype=torch.float64
):
    """Return the loss of completions of two tokens, its gradient by completion, and metrics."""
    n = len(log_weights)
    logp = torch.full((n, 2), -1.5, dtype=dtype, requires_grad=True)
    behavior_logp = logp.detach() - torch.tensor(log_weights, dtype=dtype)[:, None] / 2
    mask = (torch.arange(2) < torch.tensor(lengths or [2] * n)[:, None]).to(dtype)
    rewards = torch.tensor(rewards, dtype=dtype)
    loss, metrics = rapid_loss(logp, behavior_logp, mask, rewards, group_size, eta, *settings)
    loss.backward()
    return loss.detach(), logp.grad, metrics


# Empty batches and equal rewards ------------------------------------------------------------------


@each_baseline
def test_batch_without_tokens_has_zero_loss_and_gradient(baseline):
    loss, gradient, metrics = compute_loss(
        [0.3, -0.3], [1.0, 0.0], 2, 2.0, "both", baseline, lengths=[0, 0]
    )
    assert loss.item() == 0
    assert not gradient.any()
    assert (metrics["staleness"].item(), metrics["weight"].item()) == (0, 1)


def test_means_of_a_single_token():
    values, mask = torch.tensor([[3.0, 5.0], [7.0, 9.0]]), torch.tensor([[1, 0], [0, 0]])
    assert (token_mean(values, mask).item(), completion_mean(values, mask).item()) == (3, 1.5)


def test_infinite_eta_clips_nothing():
    _, _, metrics = compute_loss([3.0, -1.0, 0.0, 2.0], [1.0, 0.0, 0.5, 1.0], 4, math.inf)
    assert metrics["clip_fraction"].item() == 0
    assert metrics["staleness"].item() == pytest.approx(6 / 4)


# Groups of one ------------------------------------------------------------------------------------


def test_leave_one_out_baseline_refuses_groups_of_one():
    with pytest.raises(ValueError, match=r"group_size=1: set it to at least 2"):
        compute_loss([0.1, 0.2], [1.0, 0.0], 1, 2.0, "advantage", "others")


def test_group_of_one_is_its_own_baseline():
    _, gradient, _ = compute_loss([0.5, 0.0], [1.0, 1.0], 1, 10.0)
    w = math.exp(0.5)
    assert gradient[:, 0].tolist() == pytest.approx([-w * (1 - w) / 2, 0])


def test_group_of_one_has_no_advantage_in_grpo_and_dapo():
    """num_generations_eval may be 1."""
    logp, ones = torch.full((2, 2), -1.5, dtype=torch.float64), torch.ones(2, 2)
    rewards = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert grpo_loss(logp, logp, logp, ones, rewards, 1, 0.0, 0.2)[0].item() == 0
    assert dapo_loss(logp, logp, ones, rewards, 1, 0.2, 0.28)[0].item() == 0


# Extreme weights ----------------------------------------------------------------------------------


@each_clip
@each_baseline
@pytest.mark.parametrize("rewards", [[1.0, 0.0, 0.5, 1.0], [1.0] * 4, [0.0] * 4])
@pytest.mark.parametrize(("log_weight", "dtype"), [(200.0, torch.float32), (800.0, torch.float64)])
def test_overflowing_weights_stay_finite(clip, baseline, rewards, log_weight, dtype):
    """If weights are clipped in the advantage only, gradients are huge, but finite.

    If weights are clipped in both places, loss and gradient are those of weights of eta.
    """
    extreme, reference = (
        compute_loss([x, 0.1, -0.1, -x], rewards, 4, 2.0, clip, baseline, dtype=dtype)
        for x in (log_weight, 80.0)
    )
    loss, gradient, metrics = extreme
    for value in (loss, gradient, *metrics.values()):
        assert value.isfinite().all()
    assert metrics["staleness"] < log_weight
    assert metrics["weight"] > 1e25
    # A weight of e^-log_weight is 0, and a weight of e^-80 is 1e-35.
    torch.testing.assert_close(gradient, reference[1], rtol=0, atol=1e-15)
    if not any(rewards):
        assert loss.item() == 0 and not gradient.any()
    elif clip == "advantage":
        assert loss.abs() > 1e22 and (gradient[0].abs() > 1e22).all()


def test_leave_one_out_is_exact_with_a_huge_weight():
    """w = (e^40, 1, 1), eta = inf: the first completion's baseline is the mean of the others, 1."""
    _, gradient, _ = compute_loss([40.0, 0.0, 0.0], [0.5, 1.0, 1.0], 3, math.inf, "both", "others")
    assert gradient[0, 0].item() == pytest.approx(-math.exp(40) * (0.5 - 1) / 3)
