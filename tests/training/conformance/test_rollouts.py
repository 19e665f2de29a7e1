"""Completions of a user's `rollout_func`, with its log-probs and the extra columns it returns."""

import math
from copy import deepcopy

import pytest
import torch

from rapid import RapidTrainer
from tests.training.conformance.families import build_untrained
from tests.training.loops import logged_values

SIZES = {"n_step": 8, "micro_batch_size": 8}


class RecordingRollouts:
    """Returns distinct numbered completions with placeholders as log-probabilities."""

    def __init__(self):
        self.numbers: list[int] = []

    def __call__(self, prompts, trainer):
        numbers = [len(self.numbers) + row for row in range(len(prompts))]
        self.numbers += numbers
        return {
            "prompt_ids": [trainer.processing_class(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": [[2 + number % 200, 3, 1] for number in numbers],
            "logprobs": [[0.0] * 3 for _ in prompts],
            "number": numbers,
        }


class RecordingReward:
    """Gives 0 to the first `dead` completions, then 0 and 1 in turn; records completion numbers."""

    def __init__(self, dead: int = 0):
        self.__name__, self.dead, self.numbers = "reward", dead, []

    def __call__(self, prompts, number, **_):
        self.numbers += number
        return [float(value >= self.dead and value % 2) for value in number]


def train_on_rollouts(train, reward, **settings):
    arguments = {"rollout_func": (rollouts := RecordingRollouts())}
    return train(
        RapidTrainer, build_untrained("Llama"), reward, arguments, **SIZES | settings
    ), rollouts


def test_placeholder_logps_are_not_used_as_behavior_logps(train):
    """The learning rate is 0, so weights are 1; true log-probabilities are far from 0."""
    trainer, _ = train_on_rollouts(train, RecordingReward(), H=2, max_steps=2, learning_rate=0.0)
    assert logged_values(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4)
    assert not logged_values(trainer, "rapid/sampler_mismatch")


@pytest.mark.parametrize("workers", [0, 2])
def test_each_completion_keeps_its_extra_columns(train, workers):
    reward = RecordingReward()
    _, rollouts = train_on_rollouts(train, reward, H=2, max_steps=4, grading_workers=workers)
    assert sorted(reward.numbers) == rollouts.numbers
    assert len(rollouts.numbers) == 2 * 2 * 8


def test_each_resampled_completion_keeps_its_extra_columns(train):
    reward = RecordingReward(dead=8)
    settings = {"objective": "dapo", "H": 1, "dynamic_sampling_rounds": 3}
    trainer, rollouts = train_on_rollouts(train, reward, **settings)
    assert reward.numbers == rollouts.numbers == list(range(16))
    assert logged_values(trainer, "rapid/signal") == [1]


# Log-probs as log mu ------------------------------------------------------------------------------


class LoggedRollouts(RecordingRollouts):
    """Returns log-probs of another policy, or of `mu`, with rewards of 0, 1 or 1 for a group."""

    def __init__(self, mu=None):
        super().__init__()
        self.mu = mu

    def __call__(self, prompts, trainer):
        output = super().__call__(prompts, trainer)
        output["logprobs"] = [
            score(self.mu, prompt, ids).tolist() if self.mu else [-5.4 - 0.1 * (number % 3)] * 3
            for prompt, ids, number in zip(
                output["prompt_ids"], output["completion_ids"], output["number"], strict=True
            )
        ]
        return output


def score(model, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """Return log pi of each token of a completion, (T,)."""
    logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]


def reward_some(prompts, number, **_):
    """Reward all of the first group of four, and every other completion of the second."""
    return [float(value % 8 < 4 or value % 2) for value in number]


def train_with_logps(train, model, rollouts, **settings):
    arguments = {"rollout_func": rollouts}
    settings = SIZES | {"use_rollout_logps": True, "max_steps": 1, "H": 1} | settings
    return train(RapidTrainer, model, reward_some, arguments, **settings)


@pytest.mark.parametrize("micro_batch_size", [8, 2])
def test_gradient_has_weights_of_recorded_logps(train, micro_batch_size):
    """SGD subtracts the gradient of eqs. 3 and 5, also in a group of equal rewards."""
    torch.manual_seed(0)
    model = build_untrained("Llama")
    oracle, rollouts = deepcopy(model), LoggedRollouts()
    settings = {"micro_batch_size": micro_batch_size, "learning_rate": 1.0, "eta": 1.2}
    trainer = train_with_logps(train, model, rollouts, **settings)
    output = LoggedRollouts()([*trainer._logs["prompt"]], trainer)  # the same again
    losses, weights = [], []
    for group in (slice(0, 4), slice(4, 8)):
        logp = torch.stack(
            [
                score(oracle, prompt, ids).sum()
                for prompt, ids in zip(
                    output["prompt_ids"][group], output["completion_ids"][group], strict=True
                )
            ]
        )
        log_mu = torch.tensor(output["logprobs"][group]).sum(1)
        reward = torch.tensor(reward_some(None, output["number"][group]))
        weight = (logp - log_mu).exp().detach()
        advantage = reward - (weight.clamp(max=1.2) * reward).mean()
        losses.append(-(weight * advantage * logp).sum() / 8)
        weights.append(weight)
    sum(losses).backward()
    assert logged_values(trainer, "rapid/weight") == pytest.approx(
        [torch.cat(weights).mean().item()], rel=1e-4
    )
    for parameter, learned in zip(oracle.parameters(), model.parameters(), strict=True):
        expected = parameter - parameter.grad
        assert torch.allclose(learned, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 2])
def test_recorded_logps_of_the_policy_give_weights_of_1(train, steps):
    torch.manual_seed(0)
    model = build_untrained("Llama")
    rollouts = LoggedRollouts(deepcopy(model))
    trainer = train_with_logps(train, model, rollouts, H=steps, max_steps=steps, learning_rate=0.0)
    assert logged_values(trainer, "rapid/weight") == pytest.approx([1] * steps, abs=1e-5)


def test_trls_loss_has_ratios_of_recorded_logps(train):
    torch.manual_seed(0)
    model = build_untrained("Llama")
    settings = {"objective": "trl", "epsilon_high": 0.28, "max_steps": 1}
    trainer = train_with_logps(train, model, LoggedRollouts(), **settings)
    recorded = trainer.last_pass[1]["behavior_logp"]
    assert {round(value, 1) for value in recorded.flatten().tolist()} == {-5.4, -5.5, -5.6}
    assert logged_values(trainer, "clip_ratio/region_mean") != [0]


@pytest.mark.parametrize("logps", [[[-1.0, -1.0]] * 8, [[0.5] * 3] * 8, [[math.nan] * 3] * 8, []])
def test_logps_that_cannot_be_log_mu_are_refused(train, logps):
    def rollouts(prompts, trainer):
        return RecordingRollouts()(prompts, trainer) | {"logprobs": logps}

    with pytest.raises(ValueError, match=r"rollout_func returned the logprobs .* for 3 tokens"):
        train_with_logps(train, build_untrained("Llama"), rollouts)
