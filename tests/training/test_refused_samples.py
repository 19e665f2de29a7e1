"""A run ends at an unusable reward, prompt or completion, and the error names the sample."""

import math

import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    TrainerCallback,
)
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


async def async_text_reward(completions, **_):
    return ["1.0"] * len(completions)


def text_reward(completions, **_):
    return ["1.0"] * len(completions)


@pytest.mark.parametrize(
    ("reward", "settings", "count"),
    [
        (text_reward, {"grading_workers": 0}, 16),
        (text_reward, {"grading_workers": 2}, 1),
        (text_reward, {"reward_timeout": 60.0}, 16),
        (async_text_reward, {"grading_workers": 0}, 16),
    ],
)
def test_rewards_of_the_wrong_type_are_refused(train, toy_model, reward, settings, count):
    message = rf"^{reward.__name__} returned \['1.0'.* for {count} completion\(s\): return a list"
    with pytest.raises(ValueError, match=message):
        train(RapidTrainer, str(toy_model), reward, **SIZES | settings)


def test_error_in_evaluation_names_the_last_step(train, toy_model):
    def reward(completions, prompts, **_):
        return [1.0 if prompt.startswith("prompt") else None / 2 for prompt in prompts]

    arguments = {"eval_dataset": Dataset.from_list([{"prompt": "evaluated"}] * 8)}
    settings = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 2}
    with pytest.raises(TypeError) as error:
        train(RapidTrainer, str(toy_model), reward, arguments, **SIZES | settings)
    (place,) = error.value.__notes__
    assert place.startswith("at step 2, with ")
    assert place.endswith("of the prompt 'evaluated'")


@pytest.fixture
def build_gpt2():
    def build(vocabulary):
        torch.manual_seed(0)
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 1, "n_positions": 16}
        tokens = dict.fromkeys(("bos_token_id", "eos_token_id"), 1)
        return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, **sizes, **tokens))

    return build


def test_completions_longer_than_absolute_positions_are_refused(train, toy_model, build_gpt2):
    model = build_gpt2(258)
    with pytest.raises(ValueError, match=r"positions for 16 tokens in all: set .* at most 8, or"):
        train(RapidTrainer, model, **SIZES | {"max_completion_length": 9})
    train(RapidTrainer, model, **SIZES | {"max_completion_length": 8})


def test_completions_longer_than_the_context_give_warning(train, toy_model, caplog):
    model = AutoModelForCausalLM.from_pretrained(toy_model)
    model.config.max_position_embeddings = 16
    train(RapidTrainer, model, **SIZES | {"max_completion_length": 8})
    assert not [text for text in caplog.messages if "beyond" in text]
    train(RapidTrainer, model, **SIZES | {"max_completion_length": 9, "max_steps": 4})
    (warning,) = [text for text in caplog.messages if "beyond" in text]
    assert warning.startswith("step 1: a prompt has 8 tokens, and max_completion_length is 9, so")
    assert "to at most 8, or shorten prompts" in warning


def test_tokens_and_prompts_unknown_to_the_model_are_refused(train, toy_model, build_gpt2):
    last = max(AutoTokenizer.from_pretrained(toy_model)("prompt 7")["input_ids"])
    with pytest.raises(ValueError, match=f"has the token {last}, but the model has only {last} t"):
        train(RapidTrainer, build_gpt2(last), **SIZES)
    train(RapidTrainer, build_gpt2(last + 1), **SIZES)
    rows = [{"prompt": "a"}, {"prompt": None}] * 4
    with pytest.raises(ValueError, match="the prompt None is of type NoneType: make it a text"):
        train(
            RapidTrainer,
            build_gpt2(258),
            arguments={"train_dataset": Dataset.from_list(rows)},
            **SIZES,
        )


def test_tokenizer_without_end_token_is_refused(train, toy_model):
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match=r"has no eos_token, .* set tokenizer\.eos_token"):
        train(RapidTrainer, str(toy_model), arguments={"processing_class": tokenizer}, **SIZES)


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
