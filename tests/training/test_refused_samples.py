"""A run ends at what it cannot learn from, and says of which sample that is."""

import math

import pytest
from datasets import Dataset
from torch import Tensor
from transformers import TrainerCallback
from trl import GRPOTrainer

from rapid import RapidTrainer

SIZES = {"H": 2, "n_step": 8, "micro_batch_size": 4}


def test_a_reward_whose_square_is_infinite_is_refused(train, toy_model):
    asked = []

    def reward(prompts, **_):
        asked.extend(prompts)
        return [1e30 if row == 5 else 0.0 for row in range(len(prompts))]

    with pytest.raises(ValueError, match=r"reward gave the reward 1\S*e\+30 to the compl") as end:
        train(RapidTrainer, str(toy_model), reward, **SIZES)
    assert asked[5] != asked[0]
    assert f" of the prompt {asked[5]!r}: a reward has to be a number below 1e19" in str(end.value)
    place = f"at step 1, with 16 completions, the first of the prompt {asked[0]!r}"
    assert end.value.__notes__ == [place]


def test_a_prompt_without_tokens_is_refused(train, toy_model):
    given = {"train_dataset": Dataset.from_list([{"prompt": ""}] * 8)}
    with pytest.raises(ValueError, match="the prompt '' has 0 tokens"):
        train(RapidTrainer, str(toy_model), arguments=given, **SIZES)


def test_a_completion_without_tokens_is_refused(train, toy_model, monkeypatch):
    def sample(self, prompt_ids, *_):
        return [[5]] * (len(prompt_ids) - 1) + [[]], None

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", sample)
    with pytest.raises(ValueError, match=r"a completion of the prompt 'prompt \d' has no tokens"):
        train(RapidTrainer, str(toy_model), **SIZES)


class Breaks(TrainerCallback):
    def on_optimizer_step(self, args, state, control, model, **_):
        min(model.parameters(), key=Tensor.numel).data.fill_(math.nan)


def test_weights_that_are_no_numbers_end_the_run(train, toy_model):
    with pytest.raises(FloatingPointError, match="step 1: weights have become infinite or NaN"):
        train(RapidTrainer, str(toy_model), arguments={"callbacks": [Breaks()]}, **SIZES)
