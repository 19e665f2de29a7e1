"""How long a verdict takes: programs, answers and proofs, one after the other on one core.

The graders are the pipeline's. What they grade are embedded problems with a solution and a mistake.
Every problem is prepared first: in a run, too, most of its verdicts come later. No completion comes
twice in a sample and every sample has a new grader, so that no verdict is a remembered one.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from performance.models import PROBLEM_SEED, NotAvailable
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import Exercise, make


@dataclass
class Verdicts:
    """Verdicts on the completions of one kind in one sample.

    Args:
        latencies: wall-clock seconds of each verdict.
        rewarded: how many of the completions were.
    """

    latencies: list[float] = field(default_factory=list)
    rewarded: int = 0


def measure(name: str, count: int, repeats: int, advance: Callable[[float], None]) -> dict:
    """Return a benchmark's samples of each kind of completion.

    Args:
        count: problems of a sample, and completions of each kind.
        advance: called with the share that is done.

    Raises:
        NotAvailable: the benchmark cannot be graded here.
    """
    if reason := BENCHMARKS[name].unavailable():
        raise NotAvailable(reason)
    exercises = make(BENCHMARKS[name], PROBLEM_SEED, {"bench": count})["bench"]
    sides: dict[str, list[dict]] = {"correct": [], "mistaken": []}
    for repeat in range(repeats):
        for side, verdicts in _sample(name, exercises).items():
            sides[side].append(asdict(verdicts))
        advance((repeat + 1) / repeats)
    return sides


def _sample(name: str, exercises: list[Exercise]) -> dict[str, Verdicts]:
    """Return the verdicts on the solution of every exercise and on its first mistake."""
    task = BENCHMARKS[name]
    found = {"correct": Verdicts(), "mistaken": Verdicts()}
    with task.grader(task.usual_timeout) as grader:
        for exercise in exercises:
            grader.prepare(exercise.problem)
        grader.grade(exercises[0].problem, "trivial")  # starts what starts with a first verdict
        for exercise in exercises:
            for side, text in (("correct", exercise.correct), ("mistaken", exercise.mistakes[0])):
                began = time.perf_counter()
                verdict = grader.grade(exercise.problem, text)
                found[side].latencies.append(time.perf_counter() - began)
                found[side].rewarded += bool(verdict.reward)
    return found
