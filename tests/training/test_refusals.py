"""What nothing can be learned from is refused, and the error says which it was."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from peft import PeftType

from rapid.training.refusals import (
    FiniteWeights,
    check_rollouts,
    describe_sample,
    find_refused_arguments,
    note_on_error,
    refuse_completions,
    refuse_prompts,
    refuse_rewards,
)

ROWS = Dataset.from_list([{"prompt": "a"}])
STREAM = ROWS.to_iterable_dataset()
NONE, LORA = (SimpleNamespace(peft_type=kind) for kind in (PeftType.XLORA, PeftType.LORA))


def refusals(dataset=ROWS, model=None, adapter=None, environment=None, **args) -> list[str]:
    usual = {"grading_workers": 0, "optim": "sgd", "dynamic_sampling_rounds": 1}
    given = {"train_dataset": dataset, "model": model, "peft_config": adapter}
    given["environment_factory"] = environment
    return [*find_refused_arguments(SimpleNamespace(**usual | args), given)]


def test_what_can_be_trained_on_is_taken():
    assert refusals() == refusals(None) == refusals(adapter=LORA) == []
    assert refusals(adapter={"r": 8}) == []  # that this is no adapter TRL says
    assert refusals(grading_workers=2) == refusals(environment=list) == []
    assert refusals(dynamic_sampling_rounds=2) == refusals(STREAM) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dataset": ROWS.add_column("image", [0])}, "remove images from the dataset"),
        ({"grading_workers": 2, "environment": list}, "set grading_workers=0"),
        ({"optim": "adalomo"}, "changes weights in every backward pass"),
        ({"adapter": NONE}, "XLORA: with this adapter"),
        (
            {"model": SimpleNamespace(peft_config={"given": LORA, "other": NONE})},
            "XLORA: with this",
        ),
        ({"dataset": STREAM, "dynamic_sampling_rounds": 2}, "use a Dataset in place of the stream"),
    ],
)
def test_what_the_trainer_cannot_do_is_refused(given, says):
    (message,) = refusals(**given)
    assert says in message


def test_an_error_says_what_was_being_done():
    with pytest.raises(KeyError) as error, note_on_error("at step 3"):
        raise KeyError
    assert error.value.__notes__ == ["at step 3"]


def test_a_sample_is_told_in_short_with_escapes():
    assert describe_sample("a\x1b") == r"the prompt 'a\x1b'"
    assert describe_sample("a", "b" * 100).startswith("the completion 'bbb")
    assert describe_sample("a", "b" * 100).endswith("bbb' of the prompt 'a'")
    assert len(describe_sample("a", "b" * 100)) < 120


def test_a_prompt_has_a_token_and_leaves_room_for_another():
    config = SimpleNamespace(max_position_embeddings=4)
    refuse_prompts(["a", "bcd"], [[1], [1, 2, 3]], config)
    refuse_prompts(["a"], [[1] * 9], SimpleNamespace())
    for ids in ([], [1, 2, 3, 4]):
        with pytest.raises(ValueError, match=f"'b' has {len(ids)} tokens, but .* from 1 to 3"):
            refuse_prompts(["a", "b"], [[1], ids], config)


def test_a_completion_has_a_token():
    def rollout(prompts, trainer):
        return {"completion_ids": [[1], trainer]}

    refuse_completions(["a"], [[1]])
    assert check_rollouts(rollout)(["a", "b"], [2]) == {"completion_ids": [[1], [2]]}
    with pytest.raises(ValueError, match="a completion of the prompt 'b' has no tokens"):
        check_rollouts(rollout)(["a", "b"], [])


@pytest.mark.parametrize(
    ("row", "whose"), [(2, "the completion 'x' of the prompt 'a'"), (3, "'y' of the prompt 'b'")]
)
def test_an_infinite_reward_is_told_with_its_sample(row, whose):
    rewards = torch.tensor([[1.0, math.nan], [1e18, 0]]).repeat(3, 1)
    refuse_rewards(rewards, ["f", "g"], 2, ["a", "b"], ["x", "y"])
    rewards[row, 1] = -math.inf
    with pytest.raises(
        ValueError, match=f"g gave the reward -inf to .*{whose}: a reward has to be"
    ):
        refuse_rewards(rewards, ["f", "g"], 2, ["a", "b"], ["x", "y"])
    rewards[0, 0] = 1e20  # whose square is
    for first in (2, 1):
        with pytest.raises(ValueError, match=r"f gave .* to another process's sample"):
            refuse_rewards(rewards, ["f", "g"], first, ["a", "b"], ["x", "y"])


class Weights(torch.nn.Module):
    """A small tensor and a large one; a third that is not learned."""

    def __init__(self, **spoilt):
        super().__init__()
        for name, size in {"large": 5, "small": 2, "frozen": 1}.items():
            value = torch.full((size,), spoilt.get(name, 1.0))
            setattr(self, name, torch.nn.Parameter(value, requires_grad=name != "frozen"))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_all_weights_are_looked_at_in_the_end_and_before_the_smallest_tensor(last, value):
    args = SimpleNamespace(learning_rate=0.1, max_grad_norm=1.0)
    given = args, SimpleNamespace(global_step=3), SimpleNamespace(should_training_stop=last)
    callback, refusal = FiniteWeights(), pytest.raises(FloatingPointError, match="step 3: weights")
    callback.on_step_end(*given, model=Weights(frozen=value))
    with refusal:
        callback.on_step_end(*given, model=Weights(small=value))
    with refusal if last else nullcontext():
        callback.on_step_end(*given, model=Weights(large=value))


def test_a_run_without_a_step_is_refused_if_it_was_to_have_one():
    def end(most, steps):
        FiniteWeights().on_train_end(None, SimpleNamespace(max_steps=most, global_step=steps), None)

    for most, steps in ((0, 0), (1, 1), (5, 2)):
        end(most, steps)
    with pytest.raises(ValueError, match=r"no step was taken: .* has fewer samples"):
        end(1, 0)
