"""Problems made from a seed, for a model small enough to train on a laptop.

They are records of the real benchmarks and go through the same graders. Each comes as an
`Exercise`: the problem, a completion that solves it, and completions with one common mistake each.
A base model is trained on both kinds. Reinforcement learning then has mistakes to unlearn, each a
choice at a few tokens that recurs in many problems.

A maker is the `draw` of a benchmark, a function of a random generator and an id. `make` collects
what it draws.
"""

import random

from rapid.artifacts.files import BadInput
from rapid.benchmarks.base import Benchmark, Exercise

DRAWS_PER_EXERCISE = 200  # repeated draws after which a maker counts as exhausted


def draw_exercises(
    benchmark: Benchmark, seed: int, counts: dict[str, int]
) -> dict[str, list[Exercise]]:
    """Make exercises in parts, no two with the same content.

    Args:
        counts: exercises by part. A part does not depend on the sizes of the parts after it.

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
                    f"{benchmark.name}: {len(seen)} different problems were made, "
                    f"{sum(counts.values())} were asked for ({sizes}): lower what params.yaml has "
                    "for the largest, such as benchmarks' train and test, pretraining's or sft's "
                    "demonstrations"
                )
            if not fruitless:
                seen.add(key)
                parts[part].append(exercise)
    return parts
