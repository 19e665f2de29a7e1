"""The time limit of reward functions: training goes on without completions that were not graded."""

import asyncio
import gc
import math
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rapid import RapidConfig
from rapid.algorithms.dapo import build_reward_and_penalty
from rapid.rewards import MathReward
from rapid.training.rewards import StreamedRewards, wrap_function
from rapid.training.time_limit import MAX_CONSECUTIVE_TIMEOUTS, RewardTimeout, TimeLimit
from tests.subprocesses import wait_for
from tests.training.loops import (
    build_rapid_trainer,
    logged_values,
    text_sum_reward,
    train_rapid,
)

SECONDS = 0.3  # the limit where every call hangs
PATIENCE = 1.0  # the limit where other calls must return, also on a busy machine
NAN = math.nan  # the reward of a completion that is not graded
COLUMNS = {"prompts": ["p", "q"], "completions": ["a", "b"]}


@pytest.fixture
def release():
    """An event that lets hanging functions return, at the end of a test at the latest."""
    event = threading.Event()
    yield event
    event.set()


# Calls ----------------------------------------------------------------------------------------


def test_a_function_that_returns_in_time_is_called_in_the_same_thread_each_time():
    """So the state that it keeps for each thread is kept."""
    threads = []

    def reward(completions, **_):
        threads.append(threading.get_ident())
        return [len(threads)] * len(completions)

    limit = TimeLimit(60, 1)
    wrapped = wrap_function("reward", reward, limit)
    assert [wrapped(**COLUMNS) for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
    assert len({*threads}) == 1 and threads[0] != threading.get_ident()
    assert wrapped.__name__ == "reward" and wrapped.__wrapped__ is reward


@pytest.mark.parametrize(
    ("is_async", "error"),
    [
        (False, SystemExit("ended")),
        (False, TimeoutError("from the function")),
        (True, TimeoutError("from the function")),
    ],
)
def test_the_error_of_a_function_is_raised(is_async, error):
    def reward(**_):
        raise error

    async def async_reward(**_):
        raise error

    wrapped = wrap_function("reward", async_reward if is_async else reward, TimeLimit(60, 1))
    with pytest.raises(type(error), match=str(error)):
        asyncio.run(wrapped(**COLUMNS)) if is_async else wrapped(**COLUMNS)


def test_the_warning_names_the_line_at_which_a_call_hangs(release, caplog):
    def stuck(**_):
        release.wait()

    with pytest.raises(RewardTimeout):
        TimeLimit(SECONDS, 2).call("stuck", stuck, COLUMNS)
    [warning] = caplog.messages
    assert warning.startswith(
        "stuck did not return within reward_timeout=0.3 seconds for 2 completions, the first is "
        "the completion 'a' of the prompt 'p': not graded. It is still running, at "
    )
    location = warning.partition("still running, at ")[2]
    assert (
        location.startswith(f"{__file__}:")
        and " stuck > " in location
        and "threading.py" in location
    )


def test_the_location_of_a_deep_call_is_shortened(release, caplog):
    def recurse(depth=100, **_):
        return recurse(depth - 1) if depth else release.wait()

    with pytest.raises(RewardTimeout):
        TimeLimit(SECONDS, 2).call("recurse", recurse, COLUMNS)
    location = caplog.messages[0].partition("still running, at ")[2]
    assert location.count(" > ") == 6 and " > ... > " in location


def test_a_thread_ends_when_its_call_returns(release):
    def stuck(**_):
        release.wait()

    before = {*threading.enumerate()}
    limit = TimeLimit(SECONDS, 3)
    for _ in range(2):
        with pytest.raises(RewardTimeout):
            limit.call("stuck", stuck, COLUMNS)
    assert limit.call("quick", lambda **_: 1, COLUMNS) == 1
    threads = {*threading.enumerate()} - before
    assert len(threads) == 3 and all(thread.daemon for thread in threads)
    release.set()
    del limit
    gc.collect()
    wait_for(lambda: not threads & {*threading.enumerate()}, 10)


@pytest.mark.parametrize("is_async", [False, True])
def test_consecutive_timeouts_raise_an_error_with_the_name(is_async, release):
    def stuck(completions, **_):
        if completions == ["hangs"]:
            release.wait()
        return [1.0]

    async def async_stuck(completions, **_):
        if completions == ["hangs"]:
            await asyncio.sleep(60)
        return [1.0]

    function = async_stuck if is_async else stuck
    wrapped = wrap_function("my_reward", function, TimeLimit(SECONDS, 3))

    def call(text):
        rewards = wrapped(prompts=["p"], completions=[text])
        return asyncio.run(rewards) if is_async else rewards

    texts = ["hangs", "hangs", "returns", "hangs", "hangs"]
    rewards = np.concatenate([call(text) for text in texts])
    np.testing.assert_equal(rewards, [NAN, NAN, 1.0, NAN, NAN])
    with pytest.raises(TimeoutError, match=r"my_reward .* in 3 consecutive calls.*'hangs'"):
        call("hangs")


def test_an_async_function_that_ignores_its_cancellation_is_not_waited_for():
    async def stubborn(**_):
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
                return [1.0, 1.0]

    wrapped = wrap_function("stubborn", stubborn, TimeLimit(0.05, 3))

    async def call():
        began = time.monotonic()
        np.testing.assert_equal(await wrapped(**COLUMNS), [NAN, NAN])
        assert time.monotonic() - began < 0.9

    asyncio.run(call())


def test_a_call_logs_nothing_after_its_time_limit(release):
    logged, returned = [], threading.Event()

    def late(log_extra, log_metric, **_):
        log_metric("early", 1.0)
        release.wait()
        log_extra("late", ["x", "y"])
        log_metric("late", 1.0)
        returned.set()

    loggers = {name: lambda *values: logged.append(values) for name in ("log_extra", "log_metric")}
    with pytest.raises(RewardTimeout):
        TimeLimit(SECONDS, 2).call("late", late, COLUMNS | loggers)
    release.set()
    assert returned.wait(10)
    assert logged == [("early", 1.0)]


def test_a_reward_model_has_no_time_limit():
    model = torch.nn.Linear(1, 1)
    assert wrap_function("model", model, TimeLimit(1, 1)) is model


# Batches ---------------------------------------------------------------------------------------


def test_with_grading_workers_one_completion_is_not_graded(release):
    """The rewards of the other functions are dropped too, since their sum would be incomplete."""

    def stuck(completions, **_):
        if completions == ["text 1"]:
            release.wait()
        return [1.0]

    limit = TimeLimit(PATIENCE, 9)
    rewards = StreamedRewards([text_sum_reward, stuck], 3, dict, limit)
    examples = [{"prompt": "p"}] * 4
    values = rewards.collect(examples, [f"text {n}" for n in range(4)], [[1]] * 4)
    assert values.isnan().tolist() == [[False] * 2, [True] * 2, [False] * 2, [False] * 2]
    metrics: dict[str, float] = {}
    trainer = SimpleNamespace(
        reward_func_names=["first", "stuck"],
        accelerator=SimpleNamespace(gather=lambda tensor: tensor),
        add_metrics=metrics.update,
    )
    torch.testing.assert_close(limit.mask_timed_out(trainer, values, 4), values, equal_nan=True)
    assert metrics == {"rewards/first/timed_out": 0.0, "rewards/stuck/timed_out": 0.25}
    limit.mask_timed_out(trainer, values, 4)
    assert metrics["rewards/stuck/timed_out"] == 0.0


def test_a_timeout_in_one_process_drops_the_rewards_of_that_process():
    shares = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.5, 0.0]])
    metrics: dict[str, float] = {}
    trainer = SimpleNamespace(
        reward_func_names=["a", "b"],
        accelerator=SimpleNamespace(gather=lambda _: shares),
        add_metrics=metrics.update,
    )
    rewards = TimeLimit(1, 1).mask_timed_out(trainer, torch.ones(6, 2), 2)
    assert rewards.isnan().all(1).tolist() == [False, False, True, True, False, False]
    assert not rewards[:2].isnan().any()
    assert metrics == pytest.approx({"rewards/a/timed_out": 1 / 6, "rewards/b/timed_out": 1 / 3})


def test_the_overlong_penalty_of_dapo_is_nan_after_a_timeout(release):
    def stuck(**_):
        release.wait()

    functions = build_reward_and_penalty(stuck, lambda **_: [-1.0] * 2)
    limit = TimeLimit(SECONDS, 3)
    for name, function in zip(["accuracy", "overlong"], functions, strict=True):
        np.testing.assert_equal(wrap_function(name, function, limit)(**COLUMNS), [NAN, NAN])


# Training --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("objective", ["rapid", "trl"])
def test_training_skips_the_groups_of_calls_that_hang(
    toy_model, tmp_path, workers, objective, release, caplog
):
    calls = []

    def sometimes_stuck(prompts, completions, trainer_state, **_):
        hangs = trainer_state.global_step == 2 and (not workers or prompts[0].endswith("1"))
        calls.append(hangs)
        if hangs and calls.count(True) <= 2:
            release.wait()
        return text_sum_reward(prompts, completions)

    def always_one(completions, **_):
        return [1.0] * len(completions)

    settings = {"H": 2, "n_step": 32, "max_steps": 6, "grading_workers": workers}
    trainer = train_rapid(
        toy_model,
        tmp_path,
        objective,
        [sometimes_stuck, always_one],
        reward_timeout=PATIENCE,
        **settings,
    )
    assert trainer.state.global_step == 6
    timed_out = logged_values(trainer, "rewards/sometimes_stuck/timed_out")
    graded = logged_values(trainer, "rapid/graded")
    assert len(timed_out) == 3 and timed_out[0] == timed_out[2] == 0.0
    assert graded[:2] == graded[4:] == [1.0, 1.0]
    warnings = [text for text in caplog.messages if "did not return" in text]
    if workers:
        assert timed_out[1] == len(warnings) / 64 and min(graded[2:4]) >= 0.75
    else:
        assert timed_out[1] == 1.0 and graded[2:4] == [0.0, 0.0] and len(warnings) == 1
    assert {*logged_values(trainer, "rewards/always_one/timed_out")} == {0.0}


def test_with_grading_workers_the_limit_is_of_one_completion_in_evaluation_too(toy_model, tmp_path):
    calls = []

    def slow_reward(completions, **_):
        calls.append(len(completions))
        time.sleep(PATIENCE / 4 * len(completions))
        return [1.0] * len(completions)

    settings = {"grading_workers": 8, "reward_timeout": PATIENCE}
    trainer = build_rapid_trainer(toy_model, tmp_path, "rapid", slow_reward, **settings)
    metrics = trainer.evaluate(trainer.train_dataset.select(range(2)))
    assert calls == [1] * 8
    assert (metrics["eval_reward"], metrics["eval_rewards/slow_reward/timed_out"]) == (1.0, 0.0)


def test_a_function_that_always_hangs_ends_the_run(toy_model, tmp_path, release):
    def stuck_reward(**_):
        release.wait()

    with pytest.raises(
        TimeoutError, match=f"stuck_reward .* in {MAX_CONSECUTIVE_TIMEOUTS} consecutive calls"
    ):
        train_rapid(toy_model, tmp_path, "rapid", stuck_reward, H=1, reward_timeout=0.1)


def test_an_async_function_that_hangs_is_not_graded(toy_model, tmp_path):
    async def async_reward(completions, trainer_state, **_):
        await asyncio.sleep(60 * (trainer_state.global_step == 1))
        return [1.0] * len(completions)

    trainer = train_rapid(
        toy_model, tmp_path, "pg", async_reward, reward_timeout=PATIENCE, max_steps=3
    )
    assert logged_values(trainer, "rewards/async_reward/timed_out") == [0.0, 1.0, 0.0]
    assert logged_values(trainer, "rapid/graded") == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_limit_that_is_not_reached_changes_nothing(toy_model, tmp_path, workers):
    def train(**settings):
        settings |= {"max_steps": 4, "grading_workers": workers}
        return train_rapid(toy_model, tmp_path, "rapid", **settings)

    plain, limited = train(), train(reward_timeout=600)
    assert plain._time_limit is None
    state, expected = limited.model.state_dict(), plain.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    names = {name for row in plain.state.log_history for name in row}
    assert not [name for name in names if "timed_out" in name]


def test_the_time_limit_of_graders_is_a_reward_of_zero():
    """It should be shorter than `reward_timeout`, with which a completion has no reward."""
    reward = MathReward(timeout=SECONDS, workers=1)
    [verdict] = reward.grade(
        [""], [r"\boxed{\frac{0.5(x+1)^{9999}}{x}}"], answer=[r"\frac{(x+1)^{9999}}{2x}"]
    )
    assert (verdict.reward, verdict.reason) == (0.0, "timeout")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_time_limits_out_of_bounds_are_errors(seconds, tmp_path):
    with pytest.raises(ValueError, match=r"reward_timeout=.*: Input should be"):
        RapidConfig(str(tmp_path), use_cpu=True, reward_timeout=seconds)
