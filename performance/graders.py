"""How long a verdict takes: programs, answers and proofs, one after the other on one core.

The graders are the pipeline's. They grade embedded problems, each with its solution and a mistake.
Every problem is prepared first: in a run, too, most of its verdicts come later. No completion comes
twice in a sample and every sample has a new grader, so that no verdict comes from a cache.
"""

import time

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import Exercise


def sample(name: str, exercises: list[Exercise]) -> dict[str, dict]:
    """Return the `latencies` of verdicts, in seconds, and how many completions were `rewarded`.

    Both are of each kind of completion: `correct` is the solution of every exercise, `mistaken` its
    first mistake.
    """
    task = BENCHMARKS[name]
    kinds = {kind: {"latencies": [], "rewarded": 0} for kind in ("correct", "mistaken")}
    with task.grader(task.usual_timeout) as grader:
        for exercise in exercises:
            grader.prepare(exercise.problem)
        grader.grade(exercises[0].problem, "trivial")  # starts what starts with a first verdict
        for exercise in exercises:
            completions = (exercise.correct, exercise.mistakes[0])
            for counted, completion in zip(kinds.values(), completions, strict=True):
                began = time.perf_counter()
                verdict = grader.grade(exercise.problem, completion)
                counted["latencies"].append(time.perf_counter() - began)
                counted["rewarded"] += bool(verdict.reward)
    return kinds
