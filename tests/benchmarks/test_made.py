"""Made problems: from the seed alone, all different, solved by the correct answers only."""

import random
from collections import Counter

import pytest

from rapid.artifacts.demonstrations import Lesson
from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.minif2f.record import LeanProblem
from tests.benchmarks.portmanteaus import EASY, PORTMANTEAUS

MADE = [name for name, benchmark in BENCHMARKS.items() if benchmark.draw]
SLOW = {"minif2f": pytest.mark.slow}  # to grade


def contents(parts: dict) -> dict[str, set[str]]:
    return {part: {e.problem.content for e in exercises} for part, exercises in parts.items()}


@pytest.mark.parametrize("name", MADE)
class TestMake:
    def test_other_seed_other_problems(self, name):
        first, second = (draw_exercises(BENCHMARKS[name], seed, {"a": 20}) for seed in (1, 2))
        assert contents(first) != contents(second)

    def test_enough_for_the_default_no_two_alike_each_with_mistakes(self, name):
        sizes = {"test": 128, "train": 256, "pretrain": 4000}
        parts = draw_exercises(BENCHMARKS[name], 0, sizes)
        assert {part: len(exercises) for part, exercises in parts.items()} == sizes
        exercises = [exercise for part in parts.values() for exercise in part]
        for values in ({e.problem.id for e in exercises}, {e.problem.content for e in exercises}):
            assert len(values) == len(exercises)
        assert all(isinstance(e.problem, BENCHMARKS[name].record) for e in exercises)
        assert all(e.mistakes and e.correct not in e.mistakes for e in exercises)

    def test_problems_end_with_a_message_that_says_what_to_lower(self, name, monkeypatch):
        always = BENCHMARKS[name].draw(random.Random(0), "made")
        monkeypatch.setattr(type(BENCHMARKS[name]), "draw", lambda *_: always)
        with pytest.raises(
            BadInput, match=r"2 problems are needed .* only 1 different ones could be made"
        ):
            draw_exercises(BENCHMARKS[name], 0, {"train": 2})


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in MADE])
def test_the_grader_accepts_every_solution_and_refuses_every_mistake(name):
    exercises = draw_exercises(BENCHMARKS[name], 5, {"a": 40})["a"]
    with BENCHMARKS[name].grader(10) as grader:
        for exercise in exercises:
            assert grader.grade(exercise.problem, exercise.correct).reason == "passed"
            for mistake in exercise.mistakes:
                assert not grader.grade(exercise.problem, mistake).reward, mistake


@pytest.mark.slow
@pytest.mark.parametrize("label", PORTMANTEAUS)
def test_no_fixed_text_proves_a_made_theorem(label):
    """Of any family: 12 theorems have all four. The default's 80 take 20 minutes."""
    exercises = draw_exercises(BENCHMARKS["minif2f"], 0, {"test": 12})["test"]
    with BENCHMARKS["minif2f"].grader(10) as grader:
        for exercise in exercises:
            verdict = grader.grade(exercise.problem, PORTMANTEAUS[label])
            assert verdict.reward == 0, exercise.problem.formal_statement


@pytest.mark.parametrize("label", PORTMANTEAUS)
def test_fixed_texts_parse_and_prove_what_is_easy(label):
    """Otherwise they would fail for a reason of their own."""
    problem = LeanProblem(name="easy", formal_statement=f"theorem easy {EASY[label]} := by\n")
    with BENCHMARKS["minif2f"].grader(60) as grader:
        assert grader.grade(problem, PORTMANTEAUS[label]).reason == "passed"


def test_plus_inputs_catch_more_than_base_inputs():
    """Otherwise MBPP+ would be MBPP."""
    exercises = draw_exercises(BENCHMARKS["mbpp_plus"], 3, {"a": 40})["a"]
    only_plus = 0
    with BENCHMARKS["mbpp_plus"].grader(5) as grader:
        for exercise in exercises:
            base: CodeProblem = exercise.problem.model_copy(update={"plus_input": []})
            base = base.model_copy(update={"task_id": f"{base.id} base"})  # another cache entry
            only_plus += any(grader.grade(base, mistake).reward for mistake in exercise.mistakes)
    assert only_plus >= 10


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_the_share_of_each_mistake_follows_from_the_error_rate(rate):
    lesson = Lesson(id="1", prompt="?", correct="right", mistakes=["wrong", "false"])
    rng = random.Random(0)
    drawn = Counter(lesson.draw_completion(rng, rate) for _ in range(5000))
    for text, share in {"right": 1 - rate, "wrong": rate / 2, "false": rate / 2}.items():
        assert drawn[text] / 5000 == pytest.approx(share, abs=0.02 if share else 0)
