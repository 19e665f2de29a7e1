"""A run ends at an unusable reward, prompt or completion, and the error names the sample."""

import math

import pytest
from datasets import Dataset
from torch import Tensor
from transformers import TrainerCallback
from trl import GRPOTrainer

from rapid import RapidTrainer

SIZES = {"H": 2, "n_step": 8, "micro_batch_size": 4}


def test_reward_with_infinite_square_is_refused(train, toy_model):
    graded_prompts = []

    def reward(prompts, **_):
        graded_prompts.extend(prompts)
        return [1e30 if row == 5 else 0.0 for row in range(len(prompts))]

    with pytest.raises(ValueError, match=r"reward gave the reward 1\S*e\+30 to the compl") as error:
        train(RapidTrainer, str(toy_model), reward, **SIZES)
    assert graded_prompts[5] != graded_prompts[0]
    assert (
        f" of the prompt {graded_prompts[5]!r}: a reward has to be a number from -1e19 to 1e19"
        in str(error.value)
    )
    place = f"at step 1, with 16 completions, the first is of the prompt {graded_prompts[0]!r}"
    assert error.value.__notes__ == [place]


def test_prompt_without_tokens_is_refused(train, toy_model):
    arguments = {"train_dataset": Dataset.from_list([{"prompt": ""}] * 8)}
    with pytest.raises(ValueError, match="the prompt '' has 0 tokens"):
        train(RapidTrainer, str(toy_model), arguments=arguments, **SIZES)


def test_completion_without_tokens_is_refused(train, toy_model, monkeypatch):
    def sample(self, prompt_ids, *_):
        return [[5]] * (len(prompt_ids) - 1) + [[]], None

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", sample)
    with pytest.raises(ValueError, match=r"a completion of the prompt 'prompt \d' has no tokens"):
        train(RapidTrainer, str(toy_model), **SIZES)


class NanWeights(TrainerCallback):
    def on_optimizer_step(self, args, state, control, model, **_):
        min(model.parameters(), key=Tensor.numel).data.fill_(math.nan)


def test_nan_weights_end_the_run(train, toy_model):
    with pytest.raises(FloatingPointError, match="step 1: weights have become infinite or NaN"):
        train(RapidTrainer, str(toy_model), arguments={"callbacks": [NanWeights()]}, **SIZES)
