"""Generates problems from a seed, for models that are small enough to train on a laptop.

Generated ("made") problems have the fields of a published benchmark and are graded by its grader.
Each comes as an `Exercise`: the problem, a correct completion, and completions with one common
mistake each. The pipeline pre-trains a base model on correct and wrong completions. Reinforcement
learning then has to unlearn the mistakes. A mistake is a wrong choice at a few tokens, and the same
mistake occurs in many problems.

A benchmark's function `draw` generates an exercise from a random generator and an id.
`draw_exercises` calls it until there are enough exercises.
"""

import random

from rapid.artifacts.files import BadInput
from rapid.benchmarks.base import Benchmark, Exercise

MAX_DUPLICATES = 200  # in a row, after which `draw_exercises` gives up


def draw_exercises(
    benchmark: Benchmark, seed: int, counts: dict[str, int]
) -> dict[str, list[Exercise]]:
    """Draw the exercises of several parts, such as train and test, without duplicates.

    Args:
        seed: the seed of all parts.
        counts: number of exercises by part. The exercises of a part depend on the parts that come
            before it in `counts`, but not on those that come after it.

    Raises:
        BadInput: not so many different problems can be generated.
    """
    seen_contents, parts = set(), {}
    for part, count in counts.items():
        rng = random.Random(f"{benchmark.name} {part} {seed}")
        parts[part] = []
        duplicates = 0  # in a row
        while len(parts[part]) < count:
            # Ids are numbered through all parts: an id in a prompt must not reveal its part.
            exercise = benchmark.draw(rng, f"made_{len(seen_contents)}")
            content = exercise.problem.content
            duplicates = duplicates + 1 if content in seen_contents else 0
            if duplicates > MAX_DUPLICATES:
                sizes = ", ".join(f"{number} for {part}" for part, number in counts.items())
                raise BadInput(
                    f"{benchmark.name}: {sum(counts.values())} problems are needed "
                    f"({sizes}), but only {len(seen_contents)} different ones could be generated. "
                    "Lower the largest of these numbers in params.yaml: "
                    f"benchmarks.{benchmark.name}.train or test, pretraining.demonstrations, or "
                    "sft.demonstrations"
                )
            if not duplicates:
                seen_contents.add(content)
                parts[part].append(exercise)
    return parts
