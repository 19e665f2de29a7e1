"""A cache in front of a grader."""

from rapid.grading import verdicts
from rapid.grading.pool import CachedGrader
from rapid.records import MathProblem

FIRST, SECOND = (MathProblem(unique_id=name, problem="", answer="1") for name in "ab")


class CountingGrader:
    def __init__(self):
        self.open = False
        self.calls = []

    def __enter__(self):
        self.open = True
        return self

    def __exit__(self, *_):
        self.open = False

    def grade(self, problem, completion):
        self.calls.append((problem.id, completion))
        return verdicts.verdict(verdicts.PASSED if completion == "1" else verdicts.WRONG_ANSWER)


def test_a_repeated_completion_is_graded_once():
    grader = CachedGrader(CountingGrader())
    rewards = [grader.grade(FIRST, text).reward for text in ("1", "2", "1")]
    assert rewards == [1.0, 0.0, 1.0]
    assert (grader.hits, grader.misses, len(grader.grader.calls)) == (1, 2, 2)


def test_problems_do_not_share_verdicts():
    grader = CachedGrader(CountingGrader())
    grader.grade(FIRST, "1")
    grader.grade(SECOND, "1")
    assert grader.grader.calls == [("a", "1"), ("b", "1")]


def test_it_opens_and_closes_the_grader_behind_it():
    with CachedGrader(CountingGrader()) as grader:
        assert grader.grader.open
    assert not grader.grader.open
