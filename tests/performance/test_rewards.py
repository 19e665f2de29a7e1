"""The reward functions of measurements."""

from dataclasses import replace

import pytest

from performance import measures, models, rewards
from rapid.benchmarks.prompts import render_prompt


def test_solve_rate_reward_is_deterministic_for_a_text():
    texts = [f"completion {n}" for n in range(2000)]
    first, second = (
        rewards.SolveRateReward(0.1).compute_rewards(["prompt"] * 2000, texts) for _ in range(2)
    )
    assert first == second
    assert sum(first) / 2000 == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
def test_rewarded_groups_do_not_depend_on_the_order_of_verdicts(order):
    """Two batches have the same prompts. Two of the four groups have a rewarded completion."""
    reward = rewards.SolveRateReward()
    reward.compute_rewards = lambda _, completions: [
        float(completion) for completion in completions
    ]
    for verdicts in ("1100", "0001"):
        for row in order:
            reward(["aabb"[row]], [verdicts[row]], [[1]])
    assert reward.compute_rewarded_group_share(2) == 0.5


@pytest.mark.parametrize("benchmark", ["math", "mbpp_plus"])
def test_prompts_and_grader_are_those_of_the_benchmark(toy_model, benchmark):
    workload = models.load_subject("tiny", toy_model, benchmark=benchmark)
    exercise = models.make_exercises(benchmark, 1)[0]
    assert workload.prompts[0] == render_prompt(benchmark, exercise.problem)
    assert len({*workload.prompts}) == models.PROBLEM_COUNT
    reward = measures.build_grader_reward(workload, graders=2)
    completions = [exercise.correct, exercise.mistakes[0]]
    assert reward(["p"] * 2, completions, [[1]] * 2, problem=[0, 0]) == [1, 0]


def test_real_grader_grades_completions_of_the_problem_of_each_prompt(toy_model):
    workload = models.load_subject("tiny", toy_model)
    exercises = models.make_exercises("mbpp_plus", 2)
    problems = [exercise.problem for exercise in exercises]
    reward = measures.build_grader_reward(replace(workload, problems=problems))
    completions = [exercises[n].correct for n in (1, 0, 0)]
    assert reward(["p"] * 3, completions, [[1]] * 3, problem=[1, 0, 1]) == [1, 1, 0]
    assert reward.rewards == [1, 1, 0] and reward.lengths == [1, 1, 1]
