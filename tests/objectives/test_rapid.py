"""rapid_loss against hand-computed numbers, its closed form, and pg_loss."""

import math

import pytest
import torch

from rapid.objectives import pg_loss, rapid_loss


def batch(n=6, t=5, seed=0):
    """(logp, behavior_logp, mask, rewards) in float64: N completions of up to T tokens."""
    generator = torch.Generator().manual_seed(seed)
    logp = -torch.rand(n, t, generator=generator, dtype=torch.float64)
    behavior_logp = logp + 0.4 * torch.randn(n, t, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, t + 1, (n,), generator=generator)
    mask = (torch.arange(t) < lengths[:, None]).double()
    rewards = torch.randint(0, 2, (n,), generator=generator).double()
    return logp.requires_grad_(), behavior_logp, mask, rewards


def hand_computed():
    """Two completions of one prompt: w = (4, 1/2), rewards (1, 1), log pi = (-1, -2)."""
    logp = torch.tensor([[-1.0], [-2.0]], dtype=torch.float64, requires_grad=True)
    log_weight = torch.tensor([[math.log(4)], [math.log(0.5)]], dtype=torch.float64)
    ones = torch.ones(2, dtype=torch.float64)
    return logp, logp.detach() - log_weight, ones[:, None], ones


def test_clip_in_the_advantage_by_hand():
    logp, behavior_logp, mask, rewards = hand_computed()
    loss, metrics = rapid_loss(logp, behavior_logp, mask, rewards, 2, eta=2.0, clip="advantage")
    # V = (min(4, 2) + 1/2) / 2 = 1.25, so A = -0.25 for both; w A log pi = (4 * -0.25 * -1, ...)
    assert loss.item() == pytest.approx(-(1.0 + 0.25) / 2)
    loss.backward()
    assert logp.grad.flatten().tolist() == pytest.approx([4 * 0.25 / 2, 0.5 * 0.25 / 2])
    assert metrics["staleness"].item() == pytest.approx((math.log(2) + math.log(2)) / 2)
    assert metrics["clip_fraction"].item() == 0.5
    assert metrics["weight"].item() == pytest.approx(2.25)


def test_clip_in_both_by_hand():
    logp, behavior_logp, mask, rewards = hand_computed()
    loss, _ = rapid_loss(logp, behavior_logp, mask, rewards, 2, eta=2.0, clip="both")
    loss.backward()
    assert logp.grad.flatten().tolist() == pytest.approx([2 * 0.25 / 2, 0.5 * 0.25 / 2])


def test_leave_one_out_by_hand():
    logp, behavior_logp, mask, rewards = hand_computed()
    loss, _ = rapid_loss(
        logp, behavior_logp, mask, rewards, 2, eta=math.inf, clip="both", leave_one_out=True
    )
    loss.backward()
    # A_1 = 1 - 1/2, A_2 = 1 - 4
    assert logp.grad.flatten().tolist() == pytest.approx([-4 * 0.5 / 2, 0.5 * 3 / 2])


@pytest.mark.parametrize("clip", ["advantage", "both"])
def test_gradient_is_the_closed_form(clip):
    logp, behavior_logp, mask, rewards = batch()
    loss, _ = rapid_loss(logp, behavior_logp, mask, rewards, 3, eta=1.2, clip=clip)
    loss.backward()
    expected = torch.zeros_like(logp)
    for n in range(6):
        group = range(n // 3 * 3, n // 3 * 3 + 3)
        w = {i: math.exp(((logp - behavior_logp) * mask)[i].sum().item()) for i in [n, *group]}
        advantage = rewards[n] - sum(min(w[i], 1.2) * rewards[i] for i in group) / 3
        weight = min(w[n], 1.2) if clip == "both" else w[n]
        expected[n] = -weight * advantage / 6 * mask[n]
    torch.testing.assert_close(logp.grad, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("clip", ["advantage", "both"])
def test_on_policy_it_is_the_policy_gradient(clip):
    logp, _, mask, rewards = batch(seed=1)
    loss, metrics = rapid_loss(logp, logp.detach(), mask, rewards, 3, eta=2.0, clip=clip)
    loss.backward()
    rapid_gradient, logp.grad = logp.grad, None
    pg_loss(logp, mask, rewards, 3)[0].backward()
    torch.testing.assert_close(rapid_gradient, logp.grad, rtol=0, atol=1e-15)
    assert metrics["staleness"].item() == 0
    assert metrics["clip_fraction"].item() == 0


def test_masked_tokens_do_not_count():
    logp, behavior_logp, mask, rewards = batch(seed=2)
    loss, _ = rapid_loss(logp, behavior_logp, mask, rewards, 3, eta=2.0)
    with torch.no_grad():
        moved = torch.where(mask == 0, behavior_logp - 7.0, behavior_logp)
    assert rapid_loss(logp, moved, mask, rewards, 3, eta=2.0)[0].item() == loss.item()
    loss.backward()
    assert (logp.grad[mask == 0] == 0).all()


def test_a_torn_group_is_refused():
    logp, behavior_logp, mask, rewards = batch(n=5)
    with pytest.raises(ValueError, match="5 completions are not whole groups of 3"):
        rapid_loss(logp, behavior_logp, mask, rewards, 3, eta=2.0)


def test_finite_differences():
    """The loss is the integral of the estimator only where weights are constants: hold them."""
    logp, behavior_logp, mask, rewards = batch(seed=3)
    loss, _ = rapid_loss(logp, behavior_logp, mask, rewards, 3, eta=1.5)
    loss.backward()
    w = ((logp - behavior_logp) * mask).sum(1).exp().clamp(max=1.5).detach()
    value = (w * rewards).view(-1, 3).mean(1).repeat_interleave(3)

    def objective(x):
        return -(w * (rewards - value) * (x * mask).sum(1)).mean()

    step = 1e-6
    for i, j in [(0, 0), (3, 0), (5, 0)]:
        up, down = logp.detach().clone(), logp.detach().clone()
        up[i, j] += step
        down[i, j] -= step
        slope = (objective(up) - objective(down)) / (2 * step)
        assert logp.grad[i, j].item() == pytest.approx(slope.item(), abs=1e-9)
