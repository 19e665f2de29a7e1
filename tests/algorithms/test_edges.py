"""rapid_loss where something is empty, equal, alone or extreme.."""

import math

import pytest
import torch

from rapid.algorithms import dapo_loss, grpo_loss, rapid_loss

clip = pytest.mark.parametrize("clip", ["advantage", "both"])
baselines = pytest.mark.parametrize("baseline", ["group", "others"])
REWARDS = [[1.0, 0.0, 0.5, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]


def run(log_weights, rewards, group_size, eta, *settings, lengths=None, dtype=torch.float64):
    """The loss of completions of two tokens, its gradient by completion, and metrics."""
    n = len(log_weights)
    logp = torch.full((n, 2), -1.5, dtype=dtype, requires_grad=True)
    behavior_logp = logp.detach() - torch.tensor(log_weights, dtype=dtype)[:, None] / 2
    mask = (torch.arange(2) < torch.tensor(lengths or [2] * n)[:, None]).to(dtype)
    rewards = torch.tensor(rewards, dtype=dtype)
    loss, metrics = rapid_loss(logp, behavior_logp, mask, rewards, group_size, eta, *settings)
    loss.backward()
    return loss.detach(), logp.grad, metrics


# Empty and equal ----------------------------------------------------------------------------------


@clip
@baselines
def test_a_completion_without_tokens_has_no_gradient_and_counts_in_the_baseline(clip, baseline):
    """Its probability is 1 under any policy, so its weight is 1."""
    log_weights, rewards = [0.4, 9.9, -0.4], [0.25, 1.0, 0.5]
    _, gradient, metrics = run(log_weights, rewards, 3, 1.2, clip, baseline, lengths=[2, 0, 2])
    w = [math.exp(0.4), 1.0, math.exp(-0.4)]
    c = [min(x, 1.2) for x in w]
    for n in range(3):
        others = [i for i in range(3) if i != n or baseline == "group"]
        value = sum(c[i] * rewards[i] for i in others) / len(others)
        expected = -(c if clip == "both" else w)[n] * (rewards[n] - value) / 3
        assert gradient[n].tolist() == pytest.approx([expected] * 2 if n != 1 else [0, 0])
    assert metrics["weight"].item() == pytest.approx(sum(w) / 3)


@baselines
def test_a_batch_without_tokens_has_a_loss_and_a_gradient_of_zero(baseline):
    loss, gradient, metrics = run([0.3, -0.3], [1.0, 0.0], 2, 2.0, "both", baseline, lengths=[0, 0])
    assert loss.item() == 0
    assert not gradient.any()
    assert (metrics["staleness"].item(), metrics["weight"].item()) == (0, 1)


@baselines
def test_an_eta_of_infinity_clips_nothing_either_way(baseline):
    one, other = (
        run([3.0, -1.0, 0.0, 2.0], REWARDS[0], 4, math.inf, clip, baseline)
        for clip in ("advantage", "both")
    )
    assert torch.equal(one[1], other[1])
    metrics = one[2]
    assert metrics["clip_fraction"].item() == 0
    assert metrics["staleness"].item() == pytest.approx(6 / 4)


@clip
@baselines
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.3])
def test_equal_rewards_have_no_gradient_on_policy(clip, baseline, reward):
    """Up to rounding of their mean where the reward is no power of two."""
    _, gradient, _ = run([0.0] * 3, [reward] * 3, 3, 2.0, clip, baseline)
    assert gradient.abs().max() <= (0 if reward in (0, 1) else 1e-16)


# Alone --------------------------------------------------------------------------------------------


@clip
def test_leaving_one_out_of_a_group_of_one_is_refused(clip):
    with pytest.raises(ValueError, match=r"group_size=1: make groups of at least 2"):
        run([0.1, 0.2], [1.0, 0.0], 1, 2.0, clip, "others")


@clip
def test_a_group_of_one_is_its_own_baseline(clip):
    _, gradient, _ = run([0.5, 0.0], [1.0, 1.0], 1, 10.0, clip)
    w = math.exp(0.5)
    assert gradient[:, 0].tolist() == pytest.approx([-w * (1 - w) / 2, 0])


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("objective", ["grpo", "dapo"])
def test_a_group_of_one_has_no_advantage_in_grpo_and_dapo(objective):
    """num_generations_eval may be 1."""
    logp, ones = torch.full((2, 2), -1.5, dtype=torch.float64), torch.ones(2, 2)
    rewards = torch.tensor([1.0, 0.0], dtype=torch.float64)
    if objective == "grpo":
        loss, _ = grpo_loss(logp, logp, logp, ones, rewards, 1, 0.0, 0.2)
    else:
        loss, _ = dapo_loss(logp, logp, ones, rewards, 1, 0.2, 0.28)
    assert loss.item() == 0


# Extreme ------------------------------------------------------------------------------------------


@clip
@baselines
@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_log_weights_of_200_stay_finite(clip, baseline, rewards, sign):
    """exp(200) is far within float64."""
    loss, gradient, metrics = run(
        [sign * 200.0, 0.1, -0.1, -sign * 200.0], rewards, 4, 2.0, clip, baseline
    )
    for value in (loss, gradient, *metrics.values()):
        assert torch.isfinite(value).all()


@baselines
@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize(
    ("size", "dtype"),
    [(200.0, torch.float32), (800.0, torch.float64)],
    ids=["float32", "float64"],
)
def test_weights_that_overflow_are_clipped_in_both(baseline, rewards, size, dtype):
    """Loss and gradient are those of weights of eta; the mean weight that is reported is huge."""
    extreme, large = (
        run([x, 0.1, -0.1, -x], rewards, 4, 2.0, "both", baseline, dtype=dtype)
        for x in (size, 80.0)
    )
    # -x leaves a weight of 0 or of 1e-35.
    torch.testing.assert_close(extreme[1], large[1], rtol=0, atol=1e-15)
    assert torch.isfinite(extreme[0])
    assert not any(torch.isnan(value) for value in extreme[2].values())
    assert extreme[2]["staleness"] < size
    assert math.isfinite(extreme[2]["weight"])
    assert extreme[2]["weight"] > 1e25


@baselines
def test_a_weight_that_overflows_in_front_is_seen_in_the_loss(baseline):
    """clip="advantage" leaves the weight in front alone: huge, but a norm can clip it."""
    loss, gradient, _ = run([800.0, 0.1, -0.1, 0.0], REWARDS[0], 4, 2.0, "advantage", baseline)
    assert 1e24 < abs(loss) < math.inf
    assert (gradient[0].abs() > 1e24).all()
    assert torch.isfinite(gradient).all()


@baselines
def test_a_weight_that_overflows_gives_no_nan_where_all_rewards_are_zero(baseline):
    """`contributes` says that such a group has a gradient of exactly zero."""
    loss, gradient, _ = run([800.0, 0.1, -0.1, 0.0], REWARDS[2], 4, 2.0, "advantage", baseline)
    assert loss.item() == 0
    assert not gradient.any()


def test_leave_one_out_survives_a_weight_beyond_the_others_precision():
    """w = (e^40, 1, 1), eta = inf: the first one's baseline is the mean of the others, 1."""
    _, gradient, _ = run([40.0, 0.0, 0.0], [0.5, 1.0, 1.0], 3, math.inf, "both", "others")
    assert gradient[0, 0].item() == pytest.approx(-math.exp(40) * (0.5 - 1) / 3)


# Metrics ------------------------------------------------------------------------------------------


def test_staleness_is_exact_in_float64():
    _, _, metrics = run([5.0, 6.0], [1.0, 0.0], 2, 1.7)
    assert metrics["staleness"].item() == pytest.approx(math.log(1.7), rel=1e-12)
