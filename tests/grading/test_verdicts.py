"""The closed set of reasons, and what each is worth."""

import pytest

from rapid.grading import verdicts


@pytest.mark.parametrize("reason", sorted(verdicts.REASONS - {verdicts.INFRASTRUCTURE}))
def test_only_passed_is_rewarded(reason):
    assert verdicts.verdict(reason).reward == float(reason == "passed")


def test_what_was_not_graded_has_no_reward():
    assert verdicts.verdict(verdicts.INFRASTRUCTURE).reward is None


def test_the_reasons_are_closed():
    with pytest.raises(ValueError, match="unlucky"):
        verdicts.verdict("unlucky")
