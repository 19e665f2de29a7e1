"""The closed set of reasons, and what each is worth."""

import pytest

from rapid.grading import verdicts


def test_only_passed_is_rewarded_and_what_was_not_graded_has_no_reward():
    rewards = {reason: verdicts.verdict(reason).reward for reason in verdicts.REASONS}
    assert rewards.pop("infrastructure") is rewards.pop("bad_problem") is None
    assert {reason for reason, reward in rewards.items() if reward != 0.0} == {"passed"}
    assert rewards["passed"] == 1.0


def test_reasons_are_closed():
    with pytest.raises(ValueError, match="unlucky"):
        verdicts.verdict("unlucky")
