"""`reuse` repeats the H optimizer steps on an inference batch.

Gradients are compared with a plain loop in float64, which has the same completions and rewards.
"""

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl import GRPOConfig

from rapid import RapidConfig, RapidTrainer
from tests.training import loops
from tests.training.conformance import test_resume as resume

H, REUSE, N_STEP, GROUP_SIZE, RATE = 2, 3, 16, 4, 0.005
BETA, EPSILON, ETA = 0.04, 0.2, 2.0


def reward_some_prompts(prompts, completions, **_):
    """Reward all completions of every other prompt, and some completions of the others."""
    rewards = loops.text_sum_reward(prompts, completions)
    return [float(int(p.split()[-1]) % 2 or r) for p, r in zip(prompts, rewards, strict=True)]


class BatchRecorder(loops.RecordingTrainer):
    """Records the inference batches, besides the gradients of steps."""

    def _check_inference_batch(self, batch):
        vars(self).setdefault("batches", []).append(dict(batch))
        super()._check_inference_batch(batch)


def compute_rapid_loss(logp, log_mu, reference, mask, rewards):
    """-1/N sum_n w_n A_n log pi(y_n), A_n = R_n - mean of min(w, eta) R over the group."""
    log_pi = (logp * mask).sum(1)
    weight = (log_pi - (log_mu * mask).sum(1)).detach().exp()
    baseline = (weight.clamp(max=ETA) * rewards).view(-1, GROUP_SIZE).mean(1)
    advantage = rewards - baseline.repeat_interleave(GROUP_SIZE)
    return -(weight * advantage * log_pi).sum() / N_STEP


def compute_grpo_loss(logp, log_mu, reference, mask, rewards):
    """Mean over completions of the mean over tokens of the clipped surrogate and the KL term."""
    groups = rewards.view(-1, GROUP_SIZE)
    advantage = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    advantage, ratio = advantage.view(-1, 1), (logp - log_mu).exp()
    clipped = ratio.clamp(1 - EPSILON, 1 + EPSILON)
    kl = (reference - logp).exp() - (reference - logp) - 1
    token_loss = BETA * kl - torch.minimum(ratio * advantage, clipped * advantage)
    return ((token_loss * mask).sum(1) / mask.sum(1)).sum() / N_STEP


def compute_expected_gradients(toy_model, inference_batches, compute_loss) -> list[torch.Tensor]:
    """Return the gradient of each step of SGD: REUSE passes over H mini-batches of each batch."""
    model, start = (
        AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float64) for _ in range(2)
    )
    gradients = []
    for batch in inference_batches:
        with torch.no_grad():
            log_mu = loops.compute_logps(model, batch)
            reference = loops.compute_logps(start, batch)
        for step in range(REUSE * H):
            rows = slice(step % H * N_STEP, (step % H + 1) * N_STEP)
            mini_batch = {name: column[rows] for name, column in batch.items()}
            logp, mask = loops.compute_logps(model, mini_batch), mini_batch["completion_mask"]
            rewards = mini_batch["rewards"].double()
            loss = compute_loss(logp, log_mu[rows], reference[rows], mask, rewards)
            loops.take_sgd_step(model, loss, RATE)
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    return gradients


@pytest.mark.parametrize(
    ("objective", "compute_loss"), [("rapid", compute_rapid_loss), ("grpo", compute_grpo_loss)]
)
@pytest.mark.parametrize("saves", [True, False])
def test_gradients_equal_a_plain_loop(toy_model, tmp_path, objective, compute_loss, saves):
    """Both inference batches have equally rewarded groups, with a gradient off-policy only."""
    settings = {"H": H, "reuse": REUSE, "max_steps": 2 * REUSE * H, "learning_rate": RATE}
    settings |= loops.ALL_SAVINGS if saves else loops.NO_SAVINGS
    trainer = loops.train_rapid(
        toy_model, tmp_path, objective, reward_some_prompts, BatchRecorder, **settings
    )
    expected = compute_expected_gradients(toy_model, trainer.batches, compute_loss)
    assert len(trainer.batches) == 2 and len(expected) == len(trainer.gradients) == 12
    for step, (gradient, reference) in enumerate(zip(trainer.gradients, expected, strict=True)):
        # RapidTrainer standardizes rewards in float32.
        assert (gradient - reference).norm() <= 1e-6 * reference.norm() > 0, step
    if objective == "rapid":
        run = loops.logged_values(trainer, "rapid/run")
        for first in (0, REUSE * H):
            assert run[first] < run[first + H] if saves else run[first] == 1


@pytest.mark.parametrize("objective", loops.OBJECTIVES)
def test_first_pass_is_that_of_a_run_without_reuse(toy_model, tmp_path, objective):
    """Bit by bit, with the log-probs of the sampler."""
    steps = loops.OBJECTIVES[objective]["H"]
    once, twice = (
        loops.train_rapid(toy_model, tmp_path, objective, reuse=reuse, max_steps=steps)
        for reuse in (1, 2)
    )
    assert torch.equal(loops.get_weights(once), loops.get_weights(twice))


def test_trl_objective_equals_grpo_trainer_with_num_iterations(toy_model, tmp_path, monkeypatch):
    # TRL's shuffle would split groups.
    monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda batch: batch)
    settings = {"max_completion_length": 8, "max_steps": 8, "learning_rate": 0.05}
    settings |= loops.COMMON | {"epsilon": EPSILON, "beta": BETA}
    trl_sizes = {"per_device_train_batch_size": N_STEP, "steps_per_generation": H}
    stock_config = GRPOConfig(str(tmp_path / "trl"), **trl_sizes, num_iterations=2, **settings)
    config = RapidConfig(str(tmp_path), **trl_sizes, objective="trl", reuse=2, **settings)
    stock, trainer = (
        loops.make_trainer(trainer_class, arguments, toy_model, loops.text_sum_reward)
        for trainer_class, arguments in (
            (loops.ScriptedGrpoTrainer, stock_config),
            (loops.ScriptedTrainer, config),
        )
    )
    stock.train()
    trainer.train()
    loops.assert_same_training(trainer, stock, toy_model)
    ratios = [loops.logged_values(run, "clip_ratio/region_mean") for run in (stock, trainer)]
    assert max(ratios[0]) > 0 and ratios[0] == pytest.approx(ratios[1])


def test_epoch_has_reuse_times_the_steps_on_the_same_completions(toy_model, tmp_path):
    """The schedule extends over them, and only the first step on an inference batch is on-policy."""
    settings = {"H": H, "reuse": REUSE, "max_steps": -1, "num_train_epochs": 1}
    settings |= {"learning_rate": RATE}
    trainer = loops.train_rapid(
        toy_model, tmp_path, "rapid", lr_scheduler_type="linear", **settings
    )
    batches, per_batch = 32 * GROUP_SIZE // (H * N_STEP), H * REUSE
    steps = batches * per_batch
    assert (trainer.state.global_step, trainer.completions_sampled) == (steps, 32 * GROUP_SIZE)
    rates = [RATE * (steps - step) / steps for step in range(steps)]
    assert loops.logged_values(trainer, "learning_rate") == pytest.approx(rates)
    staleness = loops.logged_values(trainer, "rapid/staleness")
    on_policy = [step for step, value in enumerate(staleness) if value < loops.ROUNDING]
    assert on_policy == [*range(0, steps, per_batch)]


@pytest.mark.parametrize(("reuse_logp", "forwards"), [(True, 0), (False, H * N_STEP // GROUP_SIZE)])
def test_log_mu_is_computed_once_for_all_passes(toy_model, tmp_path, reuse_logp, forwards):
    """Another forward pass for each group, or none with the sampler's log-probs."""
    trainer = loops.build_rapid_trainer(
        toy_model, tmp_path, "rapid", H=H, reuse=REUSE, max_steps=H * REUSE,
        micro_batch_size=GROUP_SIZE, pack=False, reuse_logp=reuse_logp, skip_zero_groups=False,
    )  # fmt: skip
    scored, score = [], trainer._compute_chunk_log_pi
    trainer._compute_chunk_log_pi = lambda model, chunk: scored.append(chunk) or score(model, chunk)
    trainer.train()
    assert len(scored) == forwards


# Checkpoints --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rapid", "stream"])
def test_run_is_resumed_exactly_between_inference_batches(toy_model, tmp_path, name):
    """After 4 steps, within an epoch, and after 8 at its end; saves that fall due before wait."""
    settings = {"H": 2, "reuse": 2, "max_steps": 12}
    uninterrupted = resume.build_trainer(toy_model, tmp_path, name, **settings)
    uninterrupted.train()
    assert resume.list_saved_steps(tmp_path) == [4, 8, 12]
    expected, *rest = resume.get_result(uninterrupted)
    for step in (4, 8):
        trainer = resume.build_trainer(toy_model, tmp_path / "resumed", name, **settings)
        trainer.train(str(tmp_path / f"checkpoint-{step}"))
        weights, *others = resume.get_result(trainer)
        assert torch.equal(weights, expected) and others == rest, step


def test_checkpoint_of_another_reuse_is_refused(toy_model, tmp_path):
    resume.build_trainer(toy_model, tmp_path, reuse=2, max_steps=4).train()
    trainer = resume.build_trainer(toy_model, tmp_path, max_steps=4)
    with pytest.raises(ValueError, match=r"cannot be resumed: reuse was 2 and is now 1\."):
        trainer.train(str(tmp_path / "checkpoint-4"))


def test_checkpoint_of_a_version_without_reuse_is_resumed(toy_model, tmp_path):
    resume.build_trainer(toy_model, tmp_path, max_steps=2).train()
    checkpoint = tmp_path / "checkpoint-2"
    loop_file = checkpoint / "training_loop_0.pth"
    state = torch.load(loop_file, weights_only=True)
    del state["sizes"]["reuse"]
    torch.save(state, loop_file)
    (checkpoint / "digests.json").unlink()
    trainer = resume.build_trainer(toy_model, tmp_path, max_steps=4)
    trainer.train(str(checkpoint))
    assert isinstance(trainer, RapidTrainer) and trainer.state.global_step == 4
