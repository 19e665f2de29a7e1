"""An algorithm may scale the learning rate of a step by the metrics of its whole mini-batch."""

import math
from types import SimpleNamespace

import pytest
import torch

from rapid import RapidConfig
from rapid.training.learning_rate_factor import LearningRateFactor
from rapid.training.refusals import find_refused_arguments
from tests.training import loops

RATE = 0.5
SIZES = {"H": 2, "n_step": 8, "max_steps": 4, "learning_rate": RATE}


class WeightRecorder(loops.RecordingTrainer):
    """Records weights before each step, and the importance weights of its completions."""

    def training_step(self, *arguments):
        vars(self).setdefault("weights", []).append(loops.get_weights(self).clone())
        loss = super().training_step(*arguments)
        _, batch, logp = self.last_pass
        log_ratio = (logp - batch.get("behavior_logp", logp)) * batch["completion_mask"]
        vars(self).setdefault("ratios", []).append(log_ratio.sum(1).exp())
        return loss


def train(model, folder, name="vcpo", **settings):
    return loops.train_rapid(model, folder, name, trainer_class=WeightRecorder, **SIZES | settings)


@pytest.fixture(scope="module")
def trainer(toy_model, tmp_path_factory):
    """Two inference batches of two steps, each step in one micro-batch."""
    return train(toy_model, tmp_path_factory.mktemp("vcpo"), micro_batch_size=8)


def test_steps_are_scaled_by_the_effective_sample_size(trainer):
    scales = loops.logged_values(trainer, "rapid/step_scale")
    weights = [*trainer.weights, loops.get_weights(trainer)]
    for step, (scale, ratios) in enumerate(zip(scales, trainer.ratios, strict=True)):
        assert len(ratios) == 8  # groups of equal rewards count too
        effective = ratios.sum() ** 2 / (ratios**2).sum()
        assert scale == pytest.approx(math.sqrt(effective / 8), rel=1e-6)
        change = weights[step] - weights[step + 1]
        torch.testing.assert_close(change, RATE * scale * trainer.gradients[step])
    assert scales[0] == scales[2] == 1  # on-policy
    assert max(scales[1], scales[3]) < 0.999


def test_schedule_and_logs_have_the_unscaled_rate(trainer):
    assert loops.logged_values(trainer, "learning_rate") == [RATE] * 4
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {RATE}


def test_scale_does_not_depend_on_micro_batches(trainer, toy_model, tmp_path):
    split = train(toy_model, tmp_path, micro_batch_size=3)
    scales = loops.logged_values(split, "rapid/step_scale")
    assert scales == pytest.approx(loops.logged_values(trainer, "rapid/step_scale"), rel=1e-6)


def test_other_algorithms_are_not_scaled(toy_model, tmp_path):
    trainer = train(toy_model, tmp_path, "topr", max_steps=2)
    assert not loops.logged_values(trainer, "rapid/step_scale")


def test_resumed_run_equals_a_whole_run(trainer, toy_model, tmp_path):
    settings = {"micro_batch_size": 8, "save_strategy": "steps", "save_steps": 2}
    train(toy_model, tmp_path, max_steps=2, **settings)
    resumed = loops.build_rapid_trainer(
        toy_model, tmp_path, "vcpo", trainer_class=WeightRecorder, **SIZES | settings
    )
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(loops.get_weights(resumed), loops.get_weights(trainer))


def test_deepspeed_is_refused(tmp_path):
    config = RapidConfig(str(tmp_path), objective="vcpo", use_cpu=True, bf16=False)
    assert not [*find_refused_arguments(config, {"model": "gpt2"})]
    # `accelerate launch --use_deepspeed` sets the plugin and leaves `config.deepspeed` unset.
    config.deepspeed_plugin = SimpleNamespace(zero_stage=2)
    [message] = find_refused_arguments(config, {"model": "gpt2"})
    assert "objective='vcpo'" in message and "DeepSpeed" in message


def test_rate_is_restored_after_the_step():
    """Also where no schedule sets it anew, as after a step that float16's loss scaler skips."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=RATE)
    [group] = optimizer.param_groups
    callback = LearningRateFactor()
    callback.factor = 0.25
    for expected in (0.25 * RATE, RATE):  # the factor is that of a single step
        callback.on_pre_optimizer_step(None, None, None, optimizer=optimizer)
        assert group["lr"] == expected
        callback.on_optimizer_step(None, None, None, optimizer=optimizer)
        assert group["lr"] == RATE
