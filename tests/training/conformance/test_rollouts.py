"""Completions of a user's `rollout_func`, and the extra columns that it returns."""

import pytest

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
