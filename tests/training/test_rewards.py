"""Rewards that are graded during sampling are those of the batch, in its order."""

import threading
import time
from functools import partial

import pytest
import torch

from rapid.training.rewards import StreamedRewards

EXAMPLES = [{"prompt": f"p{i}", "answer": i} for i in range(8)]
COMPLETIONS = [f"text {i % 3}" for i in range(8)]
IDS = [[i] * (i + 1) for i in range(8)]


def answer_reward(prompts, completions, completion_ids, answer, **_):
    return [value + len(ids) / 100 for value, ids in zip(answer, completion_ids, strict=True)]


def slow_first_reward(answer, **_):
    time.sleep(0.05 if answer == [0] else 0)
    return [None if answer == [3] else -1.0]


def test_rewards_keep_order_of_batch():
    rewards = StreamedRewards([answer_reward, slow_first_reward], 3, dict)
    rewards.submit(5, EXAMPLES[5], COMPLETIONS[5], IDS[5])
    values = rewards.collect(EXAMPLES, COMPLETIONS, IDS)
    assert values[:, 0].tolist() == pytest.approx([i + (i + 1) / 100 for i in range(8)])
    assert values[3, 1].isnan()
    assert (values[[0, 1, 7], 1] == -1).all()


def test_grading_starts_before_collection():
    graded = threading.Event()

    def reward(**_):
        graded.set()
        return [1.0]

    StreamedRewards([reward], 1, dict).submit(0, EXAMPLES[0], COMPLETIONS[0], IDS[0])
    assert graded.wait(5)


def test_completion_is_graded_once():
    calls = []

    def reward(completions, **_):
        calls.append(completions)
        return [1.0]

    rewards = StreamedRewards([reward], 2, dict)
    for _ in range(2):
        rewards.submit(0, EXAMPLES[0], COMPLETIONS[0], IDS[0])
    rewards.collect(EXAMPLES[:1], COMPLETIONS[:1], IDS[:1])
    assert len(calls) == 1


def test_error_of_reward_function_is_raised_at_collection():
    def broken_reward(**_):
        raise RuntimeError("no server")

    with pytest.raises(RuntimeError, match="no server"):
        StreamedRewards([broken_reward], 1, dict).collect(EXAMPLES, COMPLETIONS, IDS)


def test_reward_that_compares_completions_is_warned_about_once(caplog):
    def above_the_mean(completion_ids, **_):
        mean = sum(map(len, completion_ids)) / len(completion_ids)
        return [len(ids) - mean for ids in completion_ids]

    rewards = StreamedRewards([answer_reward, above_the_mean], 1, dict)
    for examples in (EXAMPLES, EXAMPLES[::-1]):  # each batch is graded anew
        values = rewards.collect(examples, COMPLETIONS, IDS)
        assert values[0, 0] == pytest.approx(examples[0]["answer"] + 0.01)
    (warning,) = caplog.messages
    assert warning.startswith("above_the_mean gave all 8 completions")
    assert "set grading_workers=0" in warning


@pytest.mark.parametrize(
    ("values", "suspected"),
    [([1, 1], True), ([1], False), ([None, None], True), ([None, 1], False), ([1, None], False)],
)
def test_equal_rewards_of_two_or_more_give_warning(caplog, values, suspected):
    rewards = StreamedRewards([lambda answer, **_: [values[answer[0]]]], 1, dict)
    count = len(values)
    rewards.collect(EXAMPLES[:count], COMPLETIONS[:count], IDS[:count])
    assert bool(caplog.messages) == suspected


def test_error_cancels_waiting_completions():
    calls, release_grading = [], threading.Event()

    def reward(answer, **_):
        calls.append(answer)
        assert len(calls) > 1, "the first"
        release_grading.wait()
        return [1.0]

    rewards = StreamedRewards([reward], 1, dict)
    with pytest.raises(AssertionError, match="the first"):
        rewards.collect(EXAMPLES, COMPLETIONS, IDS)
    release_grading.set()
    rewards.collect(EXAMPLES[:1], COMPLETIONS[:1], IDS[:1])
    assert len(calls) <= 3  # one more had begun


class AsyncReward:
    async def __call__(self, **_):
        return [1.0]


def column_logging_reward(log_extra, **_):
    return [1.0]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (AsyncReward(), "async"),
        (partial(AsyncReward()), "async"),
        (column_logging_reward, "logs columns"),
        (torch.nn.Linear(1, 1), "reward model"),
    ],
)
def test_functions_that_need_whole_batches_are_refused(function, reason):
    with pytest.raises(ValueError, match=f"{reason}.*set grading_workers=0"):
        StreamedRewards([function], 1, dict)


def test_logging_columns_through_kwargs_is_refused():
    def logging_reward(completions, **kwargs):
        kwargs["log_extra"]("text", completions)
        return [1.0]

    with pytest.raises(ValueError, match=r"log_extra\('text'\) .* set grading_workers=0"):
        StreamedRewards([logging_reward], 1, dict).collect(EXAMPLES, COMPLETIONS, IDS)
