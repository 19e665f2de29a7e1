"""Generated problems follow from the seed and are distinct; only correct completions solve them."""

import random
from collections import Counter

import pytest

from rapid.artifacts.demonstrations import Lesson
from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.minif2f.record import LeanProblem
from tests.benchmarks.universal_proofs import EASY_THEOREMS, UNIVERSAL_PROOFS

GENERATED_BENCHMARKS = [name for name, benchmark in BENCHMARKS.items() if benchmark.draw]
SLOW_BENCHMARKS = {"minif2f": pytest.mark.slow}  # grading with Lean is slow


def contents_by_part(parts: dict) -> dict[str, set[str]]:
    return {
        part: {exercise.problem.content for exercise in exercises}
        for part, exercises in parts.items()
    }


@pytest.mark.parametrize("name", GENERATED_BENCHMARKS)
class TestDrawExercises:
    def test_another_seed_gives_other_problems(self, name):
        first, second = (draw_exercises(BENCHMARKS[name], seed, {"a": 20}) for seed in (1, 2))
        assert contents_by_part(first) != contents_by_part(second)

    def test_the_problems_of_the_default_are_distinct_and_have_mistakes(self, name):
        sizes = {"test": 128, "train": 256, "pretrain": 4000}
        parts = draw_exercises(BENCHMARKS[name], 0, sizes)
        assert {part: len(exercises) for part, exercises in parts.items()} == sizes
        exercises = [exercise for part in parts.values() for exercise in part]
        for values in (
            {exercise.problem.id for exercise in exercises},
            {exercise.problem.content for exercise in exercises},
        ):
            assert len(values) == len(exercises)
        assert all(isinstance(exercise.problem, BENCHMARKS[name].record) for exercise in exercises)
        assert all(
            exercise.mistakes and exercise.correct not in exercise.mistakes
            for exercise in exercises
        )

    def test_a_request_for_too_many_problems_is_refused(self, name, monkeypatch):
        same_exercise = BENCHMARKS[name].draw(random.Random(0), "made")
        monkeypatch.setattr(type(BENCHMARKS[name]), "draw", lambda *_: same_exercise)
        with pytest.raises(
            BadInput, match=r"2 problems are needed .* only 1 different ones could be generated"
        ):
            draw_exercises(BENCHMARKS[name], 0, {"train": 2})


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=SLOW_BENCHMARKS.get(name, ())) for name in GENERATED_BENCHMARKS],
)
def test_the_grader_accepts_every_solution_and_refuses_every_mistake(name):
    exercises = draw_exercises(BENCHMARKS[name], 5, {"a": 40})["a"]
    with BENCHMARKS[name].build_grader(10) as grader:
        for exercise in exercises:
            assert grader.grade(exercise.problem, exercise.correct).reason == "passed"
            for mistake in exercise.mistakes:
                assert not grader.grade(exercise.problem, mistake).reward, mistake


@pytest.mark.slow
@pytest.mark.parametrize("name", UNIVERSAL_PROOFS)
def test_no_universal_proof_proves_a_generated_theorem(name):
    """The 12 theorems are of all four families. The 80 of the default would take 20 minutes."""
    exercises = draw_exercises(BENCHMARKS["minif2f"], 0, {"test": 12})["test"]
    with BENCHMARKS["minif2f"].build_grader(10) as grader:
        for exercise in exercises:
            verdict = grader.grade(exercise.problem, UNIVERSAL_PROOFS[name])
            assert verdict.reward == 0, exercise.problem.formal_statement


@pytest.mark.slow
@pytest.mark.parametrize("name", UNIVERSAL_PROOFS)
def test_each_universal_proof_proves_an_easy_theorem(name):
    """Otherwise the text could fail because of an error in it."""
    problem = LeanProblem(
        name="easy", formal_statement=f"theorem easy {EASY_THEOREMS[name]} := by\n"
    )
    with BENCHMARKS["minif2f"].build_grader(180) as grader:
        assert grader.grade(problem, UNIVERSAL_PROOFS[name]).reason == "passed"


def test_plus_inputs_catch_more_than_base_inputs():
    """Otherwise the generated MBPP+ would be no harder than MBPP."""
    exercises = draw_exercises(BENCHMARKS["mbpp_plus"], 3, {"a": 40})["a"]
    caught_by_plus_only = 0
    with BENCHMARKS["mbpp_plus"].build_grader(5) as grader:
        for exercise in exercises:
            problem: CodeProblem = exercise.problem.model_copy(update={"plus_input": []})
            # With another id the verdict is not taken from the cache.
            problem = problem.model_copy(update={"task_id": f"{problem.id} base"})
            caught_by_plus_only += any(
                grader.grade(problem, mistake).reward for mistake in exercise.mistakes
            )
    assert caught_by_plus_only >= 10


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_the_share_of_each_mistake_follows_from_the_error_rate(rate):
    lesson = Lesson(id="1", prompt="?", correct="right", mistakes=["wrong", "false"])
    rng = random.Random(0)
    counts = Counter(lesson.draw_completion(rng, rate) for _ in range(5000))
    for text, share in {"right": 1 - rate, "wrong": rate / 2, "false": rate / 2}.items():
        assert counts[text] / 5000 == pytest.approx(share, abs=0.02 if share else 0)
