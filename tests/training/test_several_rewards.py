"""Several reward functions: names, the weighted sum that decides, and the first as accuracy."""

from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest

from rapid import RapidConfig, RapidTrainer
from rapid.training.recorder import StepRecorder
from rapid.training.rewards import make_names_distinct
from tests.training.loops import COMMON, logged_values, make_trainer, train_rapid

SIZES = {"max_completion_length": 6, "max_steps": 1, "learning_rate": 0.05}


class ConstantReward:
    """A reward function whose instances have one name."""

    def __init__(self, reward):
        self.reward = reward

    def __call__(self, completions, **_):
        return [self.reward] * len(completions)


def scaled_reward(completions, factor, **_):
    return [factor] * len(completions)


def make_cycling_reward(*rewards):
    """Return a reward function that gives these rewards to a prompt's completions, in order."""

    def cycling_reward(prompts, **_):
        cycling_reward.prompts.append(len({*prompts}))
        return [rewards[place % len(rewards)] for place in range(len(prompts))]

    cycling_reward.prompts = []
    return cycling_reward


def train_on_rewards(toy_model, folder, rewards, **settings):
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
def test_equal_names_of_reward_functions_get_numbers(names, distinct):
    assert make_names_distinct(names) == distinct


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("zero", "half", "name"),
    [
        (lambda completions, **_: [0.0] * len(completions),
         lambda completions, **_: [0.5] * len(completions), "<lambda>"),
        (partial(scaled_reward, factor=0.0), partial(scaled_reward, factor=0.5), "scaled_reward"),
        (ConstantReward(0.0), ConstantReward(0.5), "ConstantReward"),
    ],
)  # fmt: skip
def test_reward_functions_with_equal_names_have_own_metrics_and_columns(
    toy_model, tmp_path, zero, half, name, workers
):
    settings = {"log_completions": True, "grading_workers": workers}
    trainer = train_on_rewards(
        toy_model, tmp_path, [zero, make_cycling_reward(1.0), half], **settings
    )
    expected = {f"{name}-1": 0.0, "cycling_reward": 1.0, f"{name}-3": 0.5}
    means = {f"rewards/{name}/mean": value for name, value in expected.items()}
    stds = {f"rewards/{name}/std": 0.0 for name in expected}
    metrics = trainer.state.log_history[0]
    assert {
        key: value for key, value in metrics.items() if key.startswith("rewards/")
    } == means | stds
    table = pd.read_parquet(tmp_path / "completions")
    assert {name: {*table[name]} for name in expected} == {
        name: {value} for name, value in expected.items()
    }


# Dynamic sampling ---------------------------------------------------------------------------------

DAPO = {"objective": "dapo", "dynamic_sampling_rounds": 3}
EQUAL, UNEQUAL = (1, 1, 1, 1), (0, 1, 0, 1)


@pytest.mark.parametrize(
    ("settings", "reward_cycles", "rounds"),
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
def test_groups_with_equal_weighted_sums_are_resampled(
    toy_model, tmp_path, settings, reward_cycles, rounds
):
    rewards = [make_cycling_reward(*values) for values in reward_cycles]
    trainer = train_on_rewards(toy_model, tmp_path, rewards, **DAPO, **settings)
    assert rewards[0].prompts == [4] * rounds
    assert logged_values(trainer, "rapid/signal") == [float(rounds == 1)]
    if "dynamic_sampling_by" not in settings:
        assert bool(logged_values(trainer, "grad_norm")[0]) == (rounds == 1)


def test_only_groups_with_signal_replace_others(toy_model, tmp_path):
    """The second function gives different rewards to completions of every other prompt."""

    def even_prompt_reward(prompts, **_):
        return [float(prompt[-1] in "02468" and place % 2) for place, prompt in enumerate(prompts)]

    trainer = train_on_rewards(
        toy_model,
        tmp_path,
        [ConstantReward(1.0), even_prompt_reward],
        **DAPO | {"dynamic_sampling_rounds": 20},
    )
    assert trainer.completions_sampled > 16
    assert logged_values(trainer, "rapid/signal") == [1]


def test_metrics_of_trl_are_of_the_first_round(toy_model, tmp_path):
    """They are those of a run without further rounds, except for the number of tokens."""
    settings = {"reward": "solved_reward", "max_steps": 1}
    single, repeated = (
        train_rapid(toy_model, tmp_path, "dapo", dynamic_sampling_rounds=rounds, **settings)
        for rounds in (1, 3)
    )
    assert repeated.completions_sampled > single.completions_sampled == 32
    (first, *_), (logged, *_) = single.state.log_history, repeated.state.log_history
    names = {name for name in first if name.split("/")[0] in ("rewards", "completions")}
    names |= {"reward", "reward_std", "frac_reward_zero_std"}
    assert len(names) > 10
    assert {name: logged[name] for name in names} == {name: first[name] for name in names}
    assert logged["num_tokens"] == repeated.state.num_input_tokens_seen > first["num_tokens"]


# Accuracy -----------------------------------------------------------------------------------------


def test_accuracy_is_named_after_first_of_several_rewards(toy_model, tmp_path):
    trainer = train_on_rewards(toy_model, tmp_path, [ConstantReward(0.5), ConstantReward(1.0)])
    assert logged_values(trainer, "rapid/accuracy/ConstantReward-1") == [0.5]
    assert not logged_values(trainer, "rapid/accuracy")
    single = train_on_rewards(toy_model, tmp_path, ConstantReward(0.5))
    assert logged_values(single, "rapid/accuracy") == [0.5]


def test_accuracy_leaves_out_completions_that_first_function_did_not_grade(toy_model, tmp_path):
    def grade_even_prompts(prompts, **_):
        return [1.0 if prompt[-1] in "02468" else None for prompt in prompts]

    trainer = train_on_rewards(toy_model, tmp_path, [grade_even_prompts, ConstantReward(0.5)])
    assert logged_values(trainer, "rapid/accuracy/grade_even_prompts") == [1.0]
    assert logged_values(trainer, "rapid/graded") == [1.0]


@pytest.mark.parametrize("name", ["rapid/accuracy", "rapid/accuracy/accuracy"])
def test_step_record_reads_accuracy_by_either_name(name):
    recorder = StepRecorder()
    state = SimpleNamespace(global_step=1, max_steps=1)
    logs = {"loss": 0.0, "grad_norm": 0.0, "rewards/other/mean": 0.1, name: 0.75}
    recorder.on_log(None, state, SimpleNamespace(should_save=False), logs)
    assert recorder.steps[0].reward == 0.75
