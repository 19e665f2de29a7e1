"""rapid_loss matches hand-computed numbers, its closed form and, on-policy, pg_loss."""

import math

import pytest
import torch

from rapid.algorithms import RAPID, pg_loss, rapid_loss

each_clip = pytest.mark.parametrize("clip", ["advantage", "both", "nowhere"])
each_baseline = pytest.mark.parametrize("baseline", ["group", "others", "none"])


def draw_batch(n=6, t=5, seed=0):
    """Return logp, behavior_logp, mask and rewards in float64: n completions of up to t tokens."""
    generator = torch.Generator().manual_seed(seed)
    logp = -torch.rand(n, t, generator=generator, dtype=torch.float64)
    behavior_logp = logp + 0.4 * torch.randn(n, t, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, t + 1, (n,), generator=generator)
    lengths[0] = 0  # a completion without tokens has a weight of 1
    mask = (torch.arange(t) < lengths[:, None]).double()
    rewards = torch.randint(0, 2, (n,), generator=generator).double()
    return logp.requires_grad_(), behavior_logp, mask, rewards


def build_hand_computed_batch():
    """Return two completions of one prompt: w = (4, 1/2), rewards (1, 1), log pi = (-1, -2)."""
    logp = torch.tensor([[-1.0], [-2.0]], dtype=torch.float64, requires_grad=True)
    log_weight = torch.tensor([[math.log(4)], [math.log(0.5)]], dtype=torch.float64)
    ones = torch.ones(2, dtype=torch.float64)
    return logp, logp.detach() - log_weight, ones[:, None], ones


def test_clip_in_advantage_matches_hand_computation():
    logp, behavior_logp, mask, rewards = build_hand_computed_batch()
    loss, metrics = rapid_loss(logp, behavior_logp, mask, rewards, 2, eta=2.0, clip="advantage")
    # V = (min(4, 2) + 1/2) / 2 = 1.25, so A = -0.25 for both; w A log pi = (4 * -0.25 * -1, ...)
    assert loss.item() == pytest.approx(-(1.0 + 0.25) / 2)
    loss.backward()
    assert logp.grad.flatten().tolist() == pytest.approx([4 * 0.25 / 2, 0.5 * 0.25 / 2])
    assert metrics["staleness"].item() == pytest.approx(math.log(2), rel=1e-12)
    assert metrics["clip_fraction"].item() == 0.5
    assert metrics["weight"].item() == pytest.approx(2.25)


@each_clip
@each_baseline
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("eta", [0.7, 1.2, math.inf])
@pytest.mark.parametrize(("n", "group"), [(6, 3), (8, 2), (8, 4), (8, 8)])
def test_gradient_matches_closed_form(clip, baseline, weighted, eta, n, group):
    logp, behavior_logp, mask, rewards = draw_batch(n, seed=n + group)
    rewards = torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    settings = (group, eta, clip, baseline, weighted)
    loss, _ = rapid_loss(logp, behavior_logp, mask, rewards, *settings)
    loss.backward()
    weighted_advantages = compute_weighted_advantages(logp, behavior_logp, mask, rewards, *settings)
    expected = -torch.tensor(weighted_advantages, dtype=torch.float64)[:, None] / n * mask
    torch.testing.assert_close(logp.grad, expected, rtol=1e-12, atol=1e-14)


ABLATIONS = [
    {"baseline_scale": 0.25},
    {"baseline_scale": 0.0},
    {"positive_only": True},
    {"equal_groups": "reinforced"},
    {"equal_groups": "skipped"},
    {"equal_groups": "skipped", "baseline_scale": 0.0},
    {"equal_groups": "reinforced", "baseline_scale": 0.5, "positive_only": True},
]


@each_baseline
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("ablation", ABLATIONS, ids=str)
def test_gradient_of_ablations_matches_closed_form(baseline, weighted, ablation):
    """The rewards of the groups are all 1, all 0, different, and all 0.4."""
    logp, behavior_logp, mask, _ = draw_batch(12, seed=7)
    rewards = torch.tensor([1, 1, 1, 0, 0, 0, 1, 0, 1, 0.4, 0.4, 0.4], dtype=torch.float64)
    settings = (3, 1.2, "advantage", baseline, weighted)
    loss, _ = rapid_loss(logp, behavior_logp, mask, rewards, *settings, **ablation)
    loss.backward()
    weighted_advantages = compute_weighted_advantages(
        logp, behavior_logp, mask, rewards, *settings, **ablation
    )
    expected = -torch.tensor(weighted_advantages, dtype=torch.float64)[:, None] / 12 * mask
    torch.testing.assert_close(logp.grad, expected, rtol=1e-12, atol=1e-14)


def test_scale_of_zero_equals_no_baseline_and_one_equals_the_default():
    """The losses are equal bit by bit."""
    logp, behavior_logp, mask, rewards = draw_batch(seed=5)
    inputs = (logp, behavior_logp, mask, rewards, 3, 1.5)
    losses = [
        rapid_loss(*inputs, baseline="none")[0],
        rapid_loss(*inputs, baseline_scale=0.0)[0],
        rapid_loss(*inputs)[0],
        rapid_loss(*inputs, baseline_scale=1.0)[0],
    ]
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[2], losses[3])
    assert not torch.equal(losses[0], losses[2])


def test_ablations_at_their_defaults_are_in_no_spec():
    """Specs, and so the jobs, of runs without these parameters stay the same."""
    settings = RAPID.parameters(eta=2.0, clip="advantage")
    assert [*settings.model_dump()] == ["eta", "clip", "baseline", "weighted"]
    assert settings.model_copy(update={"baseline_scale": 0.0}).model_dump()["baseline_scale"] == 0


def compute_weighted_advantages(
    logp,
    behavior_logp,
    mask,
    rewards,
    group,
    eta,
    clip,
    baseline,
    weighted=True,
    baseline_scale=1.0,
    positive_only=False,
    equal_groups="kept",
):
    """Return w_n A_n of each completion in plain Python, as rapid_loss's docstring defines them."""
    log_ratio = (logp - behavior_logp).tolist()
    w = [
        math.exp(sum(x for x, is_token in zip(row, row_mask, strict=True) if is_token))
        for row, row_mask in zip(log_ratio, mask.tolist(), strict=True)
    ]
    w = w if weighted else [1.0] * len(w)
    clipped = w if clip == "nowhere" or not weighted else [min(x, eta) for x in w]
    rewards, weighted_advantages = rewards.tolist(), []
    for n in range(len(w)):
        baseline_rows = range(n // group * group, n // group * group + group)
        baseline_rows = [i for i in baseline_rows if i != n or baseline == "group"]
        value = sum(clipped[i] * rewards[i] for i in baseline_rows) / len(baseline_rows)
        value = 0.0 if baseline == "none" else value
        advantage = rewards[n] - baseline_scale * value
        if len({rewards[i] for i in range(n // group * group, n // group * group + group)}) == 1:
            by_option = {"kept": advantage, "reinforced": rewards[n], "skipped": 0.0}
            advantage = by_option[equal_groups]
        if positive_only:
            advantage = max(0.0, advantage)
        weighted_advantages.append((clipped[n] if clip == "both" else w[n]) * advantage)
    return weighted_advantages


@each_clip
@pytest.mark.parametrize("eta", [1.0, 1.5, 2.0, math.inf])
def test_on_policy_loss_is_policy_gradient(clip, eta):
    """Loss and gradient are equal bit by bit: eta >= 1 does not clip weights of 1."""
    logp, _, mask, rewards = draw_batch(seed=1)
    loss, metrics = rapid_loss(logp, logp.detach(), mask, rewards, 3, eta, clip)
    loss.backward()
    rapid_gradient, logp.grad = logp.grad, None
    expected_loss, _ = pg_loss(logp, mask, rewards, 3)
    expected_loss.backward()
    assert torch.equal(loss, expected_loss)
    assert torch.equal(rapid_gradient, logp.grad)
    assert rapid_gradient.any()
    assert metrics["staleness"].item() == 0
    assert metrics["clip_fraction"].item() == 0
    assert metrics["weight"].item() == 1
