"""Unusable arguments, samples, rewards and weights are refused with an error that names them."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from peft import PeftType
from transformers.training_args import OptimizerNames

from rapid.training.refusals import (
    FiniteWeights,
    check_rollouts,
    describe_sample,
    find_refused_arguments,
    note_on_error,
    read_rewards,
    refuse_completions,
    refuse_prompt_types,
    refuse_prompts,
    refuse_rewards,
)

ROWS = Dataset.from_list([{"prompt": "a"}])
QUESTIONS = ROWS.rename_column("prompt", "question")
STREAM = ROWS.to_iterable_dataset()
XLORA, LORA = (SimpleNamespace(peft_type=kind) for kind in (PeftType.XLORA, PeftType.LORA))


def list_refusals(
    dataset=ROWS, model=None, adapter=None, environment=None, evaluated=None, **args
) -> list[str]:
    defaults = {
        "grading_workers": 0,
        "optim": "sgd",
        "dynamic_sampling_rounds": 1,
        "use_rollout_logps": False,
        "use_vllm": False,
        "vllm_mode": "colocate",
        "algorithm": SimpleNamespace(scales_steps=False),
        "deepspeed_plugin": None,
    }
    arguments = {"train_dataset": dataset, "model": model, "peft_config": adapter}
    arguments |= {"environment_factory": environment, "eval_dataset": evaluated}
    return [*find_refused_arguments(SimpleNamespace(**defaults | args), arguments)]


def make_deepspeed_plugin(steps) -> SimpleNamespace:
    config = {"gradient_accumulation_steps": steps, "train_micro_batch_size_per_gpu": 4}
    return SimpleNamespace(hf_ds_config=SimpleNamespace(config=config))


def test_supported_arguments_are_accepted():
    assert list_refusals() == list_refusals(None) == list_refusals(adapter=LORA) == []
    assert list_refusals(adapter={"r": 8}) == []  # TRL reports that this is no adapter
    assert list_refusals(grading_workers=2) == list_refusals(environment=list) == []
    assert list_refusals(evaluated=ROWS) == list_refusals(evaluated={"a": ROWS, "b": STREAM}) == []
    assert list_refusals(use_vllm=True, model="name") == []
    assert list_refusals(deepspeed_plugin=make_deepspeed_plugin(1)) == []
    assert list_refusals(deepspeed_plugin=make_deepspeed_plugin("auto")) == []
    assert list_refusals(use_vllm=True, model=SimpleNamespace(name_or_path="name")) == []
    assert list_refusals(use_vllm=True, vllm_mode="server", model=SimpleNamespace()) == []
    assert list_refusals(ROWS.rename_column("prompt", "environment"), environment=list) == []
    assert list_refusals(dynamic_sampling_rounds=2) == list_refusals(STREAM) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"dataset": ROWS.add_column("image", [0])}, "remove images from the dataset"),
        (
            {"deepspeed_plugin": make_deepspeed_plugin(4)},
            "DeepSpeed's configuration sets gradient_accumulation_steps=4",
        ),
        (
            {"dataset": QUESTIONS},
            "train_dataset needs the column 'prompt', but has 'question': ren",
        ),
        ({"evaluated": QUESTIONS}, "eval_dataset needs the column 'prompt', but has 'question': r"),
        ({"evaluated": {"a": ROWS, "b": QUESTIONS}}, "eval_dataset['b'] needs the column 'prompt'"),
        (
            {"dataset": DatasetDict(test=ROWS, train=ROWS)},
            "is a DatasetDict with the splits 'test', 'train': pass one of them, such as "
            "dataset['test']",
        ),
        ({"use_vllm": True, "model": SimpleNamespace(name_or_path="")}, "by its name, but this"),
        ({"grading_workers": 2, "environment": list}, "set grading_workers=0"),
        ({"use_rollout_logps": True}, "pass a rollout_func"),
        ({"optim": "adalomo"}, "changes weights in every backward pass"),
        ({"optim": OptimizerNames.GALORE_ADAMW_LAYERWISE}, "optim=galore_adamw_layerwise changes"),
        ({"adapter": XLORA}, "XLORA: with this adapter"),
        (
            {"model": SimpleNamespace(peft_config={"first": LORA, "second": XLORA})},
            "XLORA: with this",
        ),
        ({"dataset": STREAM, "dynamic_sampling_rounds": 2}, "use a Dataset in place of the stream"),
    ],
)
def test_unsupported_arguments_are_refused(arguments, reason):
    (message,) = list_refusals(**arguments)
    assert reason in message
    assert "PeftType" not in message


def test_note_is_added_to_error():
    with pytest.raises(KeyError) as error, note_on_error("at step 3"):
        raise KeyError
    assert error.value.__notes__ == ["at step 3"]


def test_sample_is_described_briefly_and_escaped():
    assert describe_sample("a\x1b") == r"the prompt 'a\x1b'"
    assert describe_sample("a", "b" * 100).startswith("the completion 'bbb")
    assert describe_sample("a", "b" * 100).endswith("bbb' of the prompt 'a'")
    assert len(describe_sample("a", "b" * 100)) < 120


def test_empty_and_too_long_prompts_are_refused():
    config = SimpleNamespace(max_position_embeddings=4)
    refuse_prompts(["a", "bcd"], [[1], [1, 2, 3]], config)
    refuse_prompts(["a"], [[1] * 9], SimpleNamespace())
    for ids in ([], [1, 2, 3, 4]):
        with pytest.raises(ValueError, match=f"'b' has {len(ids)} tokens, but .* from 1 to 3"):
            refuse_prompts(["a", "b"], [[1], ids], config)
    with pytest.raises(ValueError, match="has 0 tokens, but the model takes at least 1: remove"):
        refuse_prompts(["a"], [[]], SimpleNamespace())


@pytest.mark.parametrize("prompt", [None, 5, ["a", "b"], [], b"a"])
def test_prompts_of_the_wrong_type_are_refused(prompt):
    good_prompts = ["", [{"role": "user", "content": "a"}]]
    refuse_prompt_types(good_prompts)
    with pytest.raises(
        ValueError, match=f"is of type {type(prompt).__name__}: make it a text"
    ) as e:
        refuse_prompt_types([*good_prompts, prompt])
    assert str(e.value).startswith(f"the prompt {prompt!r} is")


def test_completions_without_tokens_are_refused():
    def rollout(prompts, trainer):
        return {"completion_ids": [[1], trainer]}

    refuse_completions(["a"], [[1]])
    assert check_rollouts(rollout)(["a", "b"], [2]) == {"completion_ids": [[1], [2]]}
    with pytest.raises(ValueError, match="a completion of the prompt 'b' has no tokens"):
        check_rollouts(rollout)(["a", "b"], [])


@pytest.mark.parametrize(
    ("row", "sample"), [(2, "the completion 'x' of the prompt 'a'"), (3, "'y' of the prompt 'b'")]
)
def test_infinite_reward_is_refused_with_its_sample(row, sample):
    rewards = torch.tensor([[1.0, math.nan], [1e18, 0]]).repeat(3, 1)
    refuse_rewards(rewards, ["f", "g"], 2, ["a", "b"], ["x", "y"])
    rewards[row, 1] = -math.inf
    with pytest.raises(
        ValueError, match=f"g gave the reward -inf to .*{sample}: a reward has to be"
    ):
        refuse_rewards(rewards, ["f", "g"], 2, ["a", "b"], ["x", "y"])
    rewards[0, 0] = 1e20  # its square is infinite in float32
    for first in (2, 1):
        with pytest.raises(ValueError, match=r"f gave .* to another process's sample"):
            refuse_rewards(rewards, ["f", "g"], first, ["a", "b"], ["x", "y"])


@pytest.mark.parametrize(
    "returned",
    [
        [1, None],
        (1.0, math.nan),
        torch.tensor([1.0, math.nan]),
        np.array([1.0, math.nan]),
        [torch.tensor(1), np.float32("nan")],
        map(float, ["1", "nan"]),
    ],
)
def test_rewards_are_read_as_numbers(returned):
    first, second = read_rewards("f", returned, 2)
    assert first == 1.0
    assert math.isnan(second)


@pytest.mark.parametrize(
    "returned",
    [
        1.0,
        None,
        "12",
        ["1", "2"],
        [b"1", 2],
        {1: "a", 2: "b"},
        {1, 2},
        [[1.0], [2.0]],
        [{"score": 1}] * 2,
        [1.0],
        [1.0] * 3,
        [],
        [10**400, 1],
        [1j, 1],
        torch.tensor(1.0),
        torch.ones(2, 1),
    ],
)
def test_what_is_no_sequence_of_rewards_is_refused(returned):
    with pytest.raises(
        ValueError, match=r"^f returned .* for 2 completion\(s\): return a list with"
    ):
        read_rewards("f", returned, 2)


def test_wrong_rewards_are_shown_briefly():
    with pytest.raises(ValueError, match=r"returned \{0: 'xxx") as error:
        read_rewards("f", dict.fromkeys(range(999), "x" * 999), 999)
    assert len(str(error.value)) < 600


class ThreeTensors(torch.nn.Module):
    """A model with a small, a large and a frozen tensor, which may have special values."""

    def __init__(self, **values):
        super().__init__()
        for name, size in {"large": 5, "small": 2, "frozen": 1}.items():
            value = torch.full((size,), values.get(name, 1.0))
            setattr(self, name, torch.nn.Parameter(value, requires_grad=name != "frozen"))


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_smallest_tensor_is_checked_each_step_and_all_at_the_end(is_last, value):
    args = SimpleNamespace(learning_rate=0.1, max_grad_norm=1.0)
    state, control = SimpleNamespace(global_step=3), SimpleNamespace(should_training_stop=is_last)
    callback, refusal = FiniteWeights(), pytest.raises(FloatingPointError, match="step 3: weights")
    callback.on_step_end(args, state, control, model=ThreeTensors(frozen=value))
    with refusal:
        callback.on_step_end(args, state, control, model=ThreeTensors(small=value))
    with refusal if is_last else nullcontext():
        callback.on_step_end(args, state, control, model=ThreeTensors(large=value))


def test_run_without_any_step_is_refused():
    def end_training(max_steps, steps):
        FiniteWeights().on_train_end(
            None, SimpleNamespace(max_steps=max_steps, global_step=steps), None
        )

    for max_steps, steps in ((0, 0), (1, 1), (5, 2)):
        end_training(max_steps, steps)
    with pytest.raises(ValueError, match=r"no step was taken: .* has fewer samples"):
        end_training(1, 0)
