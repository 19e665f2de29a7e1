"""Completions of the user's own `rollout_func`: what it says of them beside their tokens."""

import pytest

from rapid import RapidTrainer
from tests.training.conformance.families import untrained
from tests.training.loops import logged

SIZES = {"n_step": 8, "micro_batch_size": 8}


class Rollouts:
    """Completions that differ, each with a number of its own, and no log-probabilities."""

    def __init__(self):
        self.given: list[int] = []

    def __call__(self, prompts, trainer):
        numbers = [len(self.given) + row for row in range(len(prompts))]
        self.given += numbers
        return {
            "prompt_ids": [trainer.processing_class(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": [[2 + number % 200, 3, 1] for number in numbers],
            "logprobs": [[0.0] * 3 for _ in prompts],
            "number": numbers,
        }


class Reward:
    """0 in the first `dead` completions, then 0 and 1 in turn; notes the numbers that it gets."""

    def __init__(self, dead: int = 0):
        self.__name__, self.dead, self.got = "reward", dead, []

    def __call__(self, prompts, number, **_):
        self.got += number
        return [float(one >= self.dead and one % 2) for one in number]


def rolled(train, reward, **settings):
    given = {"rollout_func": (rollouts := Rollouts())}
    return train(RapidTrainer, untrained("Llama"), reward, given, **SIZES | settings), rollouts


def test_placeholders_are_not_taken_for_log_mu(train):
    """The learning rate is 0: the policy stays mu, which is far from 0."""
    trainer, _ = rolled(train, Reward(), H=2, max_steps=2, learning_rate=0.0)
    assert logged(trainer, "rapid/weight") == pytest.approx([1, 1], abs=1e-4)
    assert not logged(trainer, "rapid/sampler_mismatch")


@pytest.mark.parametrize("workers", [0, 2])
def test_each_completion_has_its_own_extras(train, workers):
    reward = Reward()
    _, rollouts = rolled(train, reward, H=2, max_steps=4, grading_workers=workers)
    assert sorted(reward.got) == rollouts.given
    assert len(rollouts.given) == 2 * 2 * 8


def test_each_resampled_completion_has_its_own_extras(train):
    reward = Reward(dead=8)
    settings = {"objective": "dapo", "H": 1, "dynamic_sampling_rounds": 3}
    trainer, rollouts = rolled(train, reward, **settings)
    assert reward.got == rollouts.given == list(range(16))
    assert logged(trainer, "rapid/signal") == [1]
