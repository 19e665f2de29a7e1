"""Rewards graded beside sampling are those of the batch, whatever the order they come in."""

import threading
import time
from functools import partial

import pytest
import torch

from rapid.training.rewards import StreamedRewards

EXAMPLES = [{"prompt": f"p{i}", "answer": i} for i in range(8)]
COMPLETIONS = [f"text {i % 3}" for i in range(8)]
IDS = [[i] * (i + 1) for i in range(8)]


def by_answer(prompts, completions, completion_ids, answer, **_):
    return [a + len(ids) / 100 for a, ids in zip(answer, completion_ids, strict=True)]


def slow_first(answer, **_):
    time.sleep(0.05 if answer == [0] else 0)
    return [None if answer == [3] else -1.0]


def test_rewards_are_in_the_order_of_the_batch():
    rewards = StreamedRewards([by_answer, slow_first], 3, dict)
    rewards.submit(5, EXAMPLES[5], COMPLETIONS[5], IDS[5])
    found = rewards.collect(EXAMPLES, COMPLETIONS, IDS)
    assert found[:, 0].tolist() == pytest.approx([i + (i + 1) / 100 for i in range(8)])
    assert found[3, 1].isnan()
    assert (found[[0, 1, 7], 1] == -1).all()


def test_grading_goes_on_before_it_is_asked_for():
    graded = threading.Event()

    def reward(**_):
        graded.set()
        return [1.0]

    StreamedRewards([reward], 1, dict).submit(0, EXAMPLES[0], COMPLETIONS[0], IDS[0])
    assert graded.wait(5)


def test_a_completion_is_graded_once():
    calls = []

    def reward(completions, **_):
        calls.append(completions)
        return [1.0]

    rewards = StreamedRewards([reward], 2, dict)
    for _ in range(2):
        rewards.submit(0, EXAMPLES[0], COMPLETIONS[0], IDS[0])
    rewards.collect(EXAMPLES[:1], COMPLETIONS[:1], IDS[:1])
    assert len(calls) == 1


def test_what_a_reward_raises_is_raised_when_rewards_are_asked_for():
    def broken(**_):
        raise RuntimeError("no server")

    with pytest.raises(RuntimeError, match="no server"):
        StreamedRewards([broken], 1, dict).collect(EXAMPLES, COMPLETIONS, IDS)


def test_rewards_that_compare_completions_are_suspected_once(caplog):
    def above_the_mean(completion_ids, **_):
        mean = sum(map(len, completion_ids)) / len(completion_ids)
        return [len(ids) - mean for ids in completion_ids]

    rewards = StreamedRewards([by_answer, above_the_mean], 1, dict)
    for examples in (EXAMPLES, EXAMPLES[::-1]):  # each batch is graded anew
        found = rewards.collect(examples, COMPLETIONS, IDS)
        assert found[0, 0] == pytest.approx(examples[0]["answer"] + 0.01)
    (warning,) = caplog.messages
    assert warning.startswith("above_the_mean gave all 8 completions")
    assert "set grading_workers=0" in warning


@pytest.mark.parametrize(
    ("given", "suspected"),
    [([1, 1], True), ([1], False), ([None, None], True), ([None, 1], False), ([1, None], False)],
)
def test_equal_rewards_of_two_or_more_are_suspected(caplog, given, suspected):
    rewards = StreamedRewards([lambda answer, **_: [given[answer[0]]]], 1, dict)
    count = len(given)
    rewards.collect(EXAMPLES[:count], COMPLETIONS[:count], IDS[:count])
    assert bool(caplog.messages) == suspected


def test_where_one_raises_those_that_wait_are_not_graded():
    calls, go = [], threading.Event()

    def reward(answer, **_):
        calls.append(answer)
        assert len(calls) > 1, "the first"
        go.wait()
        return [1.0]

    rewards = StreamedRewards([reward], 1, dict)
    with pytest.raises(AssertionError, match="the first"):
        rewards.collect(EXAMPLES, COMPLETIONS, IDS)
    go.set()
    rewards.collect(EXAMPLES[:1], COMPLETIONS[:1], IDS[:1])
    assert len(calls) <= 3  # one had begun


class Waits:
    async def __call__(self, **_):
        return [1.0]


def logs_columns(log_extra, **_):
    return [1.0]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (Waits(), "async"),
        (partial(Waits()), "async"),
        (logs_columns, "logs columns"),
        (torch.nn.Linear(1, 1), "reward model"),
    ],
)
def test_what_cannot_be_graded_one_by_one_is_refused(function, why):
    with pytest.raises(ValueError, match=f"{why}.*set grading_workers=0"):
        StreamedRewards([function], 1, dict)


def test_what_logs_columns_unannounced_is_refused_then():
    def logs(completions, **others):
        others["log_extra"]("text", completions)
        return [1.0]

    with pytest.raises(ValueError, match=r"log_extra\('text'\) .* set grading_workers=0"):
        StreamedRewards([logs], 1, dict).collect(EXAMPLES, COMPLETIONS, IDS)
