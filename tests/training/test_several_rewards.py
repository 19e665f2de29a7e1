"""Several reward functions: their names, the sum that decides, and the first, the accuracy."""

from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest

from rapid import RapidConfig, RapidTrainer
from rapid.training.recorder import StepRecorder
from rapid.training.rewards import distinct_names
from tests.training.loops import COMMON, logged_values, make_trainer

SIZES = {"max_completion_length": 6, "max_steps": 1, "learning_rate": 0.05}


class Constant:
    """A reward function whose instances have one name."""

    def __init__(self, reward):
        self.reward = reward

    def __call__(self, completions, **_):
        return [self.reward] * len(completions)


def scaled(completions, factor, **_):
    return [factor] * len(completions)


def cycle(*rewards):
    """A reward function that gives these to the completions of a prompt, in order."""

    def cycled(prompts, **_):
        cycled.prompts.append(len({*prompts}))
        return [rewards[place % len(rewards)] for place in range(len(prompts))]

    cycled.prompts = []
    return cycled


def train(toy_model, folder, rewards, **settings):
    config = RapidConfig(str(folder), **COMMON | SIZES | {"n_step": 16, "H": 1} | settings)
    trainer = make_trainer(RapidTrainer, config, toy_model, rewards)
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("names", "distinct"),
    [
        (["f"], ["f"]),
        (["f", "g"], ["f", "g"]),
        (["f", "g", "f"], ["f-1", "g", "f-3"]),
        (["a", "a", "a-2"], ["a-1", "a-2-2", "a-2-3"]),
    ],
)
def test_reward_functions_of_one_name_get_their_place(names, distinct):
    assert distinct_names(names) == distinct


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("zero", "half", "name"),
    [
        (lambda completions, **_: [0.0] * len(completions),
         lambda completions, **_: [0.5] * len(completions), "<lambda>"),
        (partial(scaled, factor=0.0), partial(scaled, factor=0.5), "scaled"),
        (Constant(0.0), Constant(0.5), "Constant"),
    ],
)  # fmt: skip
def test_reward_functions_of_one_name_have_a_metric_and_a_column_each(
    toy_model, tmp_path, zero, half, name, workers
):
    settings = {"log_completions": True, "grading_workers": workers}
    trainer = train(toy_model, tmp_path, [zero, cycle(1.0), half], **settings)
    expected = {f"{name}-1": 0.0, "cycled": 1.0, f"{name}-3": 0.5}
    means = {f"rewards/{name}/mean": value for name, value in expected.items()}
    stds = {f"rewards/{name}/std": 0.0 for name in expected}
    found = trainer.state.log_history[0]
    assert {
        key: value for key, value in found.items() if key.startswith("rewards/")
    } == means | stds
    table = pd.read_parquet(tmp_path / "completions")
    assert {name: {*table[name]} for name in expected} == {n: {v} for n, v in expected.items()}


# Dynamic sampling ---------------------------------------------------------------------------------

DAPO = {"objective": "dapo", "dynamic_sampling_rounds": 3}
EQUAL, UNEQUAL = (1, 1, 1, 1), (0, 1, 0, 1)


@pytest.mark.parametrize(
    ("settings", "functions", "rounds"),
    [
        ({}, [EQUAL, UNEQUAL], 1),
        ({}, [UNEQUAL, (1, 0, 1, 0)], 3),
        ({"reward_weights": [1.0, 0.0]}, [EQUAL, UNEQUAL], 3),
        ({"reward_weights": [2.0, 1.0]}, [UNEQUAL, (1, 0, 1, 0)], 1),
        ({"reward_weights": [1.0, 2.0]}, [(0, 2, 0, 2), (1, 0, 1, 0)], 3),
        ({"dynamic_sampling_by": "accuracy"}, [EQUAL, UNEQUAL], 3),
        ({"dynamic_sampling_by": "accuracy"}, [UNEQUAL, (1, 0, 1, 0)], 1),
    ],
)
def test_groups_are_resampled_whose_weighted_sums_are_equal(
    toy_model, tmp_path, settings, functions, rounds
):
    rewards = [cycle(*given) for given in functions]
    trainer = train(toy_model, tmp_path, rewards, **DAPO, **settings)
    assert rewards[0].prompts == [4] * rounds
    assert logged_values(trainer, "rapid/signal") == [float(rounds == 1)]
    if "dynamic_sampling_by" not in settings:
        assert bool(logged_values(trainer, "grad_norm")[0]) == (rounds == 1)


def test_only_groups_with_signal_take_the_place_of_others(toy_model, tmp_path):
    """The second function tells the completions of every other prompt apart."""

    def sometimes(prompts, **_):
        return [float(prompt[-1] in "02468" and place % 2) for place, prompt in enumerate(prompts)]

    trainer = train(
        toy_model, tmp_path, [Constant(1.0), sometimes], **DAPO | {"dynamic_sampling_rounds": 20}
    )
    assert trainer.completions_sampled > 16
    assert logged_values(trainer, "rapid/signal") == [1]


# Accuracy -----------------------------------------------------------------------------------------


def test_the_accuracy_of_several_reward_functions_has_the_firsts_name(toy_model, tmp_path):
    trainer = train(toy_model, tmp_path, [Constant(0.5), Constant(1.0)])
    assert logged_values(trainer, "rapid/accuracy/Constant-1") == [0.5]
    assert not logged_values(trainer, "rapid/accuracy")
    alone = train(toy_model, tmp_path, Constant(0.5))
    assert logged_values(alone, "rapid/accuracy") == [0.5]


@pytest.mark.parametrize("name", ["rapid/accuracy", "rapid/accuracy/accuracy"])
def test_steps_have_the_accuracy_by_either_name(name):
    recorder = StepRecorder()
    state = SimpleNamespace(global_step=1, max_steps=1)
    logs = {"loss": 0.0, "grad_norm": 0.0, "rewards/other/mean": 0.1, name: 0.75}
    recorder.on_log(None, state, SimpleNamespace(should_save=False), logs)
    assert recorder.steps[0].reward == 0.75
