"""DAPO penalizes completions that are close to the length limit."""

import pytest

from rapid.algorithms import ALGORITHMS
from rapid.algorithms.dapo import build_reward_and_penalty
from tests.algorithms.test_zero_gradients import SETTINGS


@pytest.mark.parametrize(
    ("share", "limit", "lengths", "penalties"),
    [
        (0.5, 8, [1, 4, 5, 6, 8], [0, 0, -0.25, -0.5, -1]),
        (0.25, 10, [8, 9, 10], [0, -0.5, -1]),  # 2.5 tokens, rounded to 2
        (0.2, 2, [1, 2], [0, -1]),  # at least one token
    ],
)
def test_last_share_of_limit_is_penalized_per_token(share, limit, lengths, penalties):
    dapo = ALGORITHMS["dapo"]
    settings = dapo.parameters(**SETTINGS["dapo"] | {"overlong_buffer": share})
    accuracy, overlong = dapo.build_reward_functions(
        settings, limit, lambda completion_ids: [1.0] * len(lengths)
    )
    ids = [[7] * length for length in lengths]
    assert accuracy(completion_ids=ids) == [1.0] * len(lengths)
    assert overlong(completion_ids=ids) == pytest.approx(penalties)


def test_completions_without_reward_have_no_penalty():
    rewards = iter([[1.0, None], [None], [0.0]])
    accuracy, overlong = build_reward_and_penalty(
        lambda **_: next(rewards),
        lambda completion_ids: [-float(len(ids)) for ids in completion_ids],
    )
    for ids, expected in [([[1], [2, 3]], [-1.0, None]), ([[1]], [None]), ([[1]], [-1.0])]:
        accuracy(completion_ids=ids)
        assert overlong(completion_ids=ids) == expected
