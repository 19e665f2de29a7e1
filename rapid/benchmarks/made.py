"""Problems made from a seed, for a model small enough to train on a laptop.

They are records of the published benchmarks and are graded by the same graders. Each is an
`Exercise`: the problem, a correct completion, and completions with one common mistake each. A base
model is trained on correct and wrong completions. Reinforcement learning then unlearns the
mistakes, each a choice at a few tokens that recurs in many problems.

The `draw` of a benchmark makes an exercise from a random generator and an id. `draw_exercises`
calls it until there are enough.
"""

import random

from rapid.artifacts.files import BadInput
from rapid.benchmarks.base import Benchmark, Exercise

DRAWS_PER_EXERCISE = 200  # repeated draws in a row after which a maker counts as exhausted


def draw_exercises(
    benchmark: Benchmark, seed: int, counts: dict[str, int]
) -> dict[str, list[Exercise]]:
    """Draw the exercises of several parts, no two with the same content.

    Args:
        counts: number of exercises by part. A part does not depend on the sizes of later parts.

    Raises:
        BadInput: the maker does not have that many different problems.
    """
    seen, parts = set(), {}
    for part, count in counts.items():
        rng = random.Random(f"{benchmark.name} {part} {seed}")
        parts[part] = []
        fruitless = 0
        while len(parts[part]) < count:
            # The number runs through all parts: an id in a prompt must not tell which part it is.
            exercise = benchmark.draw(rng, f"made_{len(seen)}")
            key = exercise.problem.content
            fruitless = fruitless + 1 if key in seen else 0
            if fruitless > DRAWS_PER_EXERCISE:
                sizes = ", ".join(f"{number} for {part}" for part, number in counts.items())
                raise BadInput(
                    f"{benchmark.name}: {sum(counts.values())} problems are needed "
                    f"({sizes}), but only {len(seen)} different ones could be made. Lower "
                    "the largest of these numbers in params.yaml: train and test of "
                    "benchmarks, demonstrations of pretraining or sft"
                )
            if not fruitless:
                seen.add(key)
                parts[part].append(exercise)
    return parts
