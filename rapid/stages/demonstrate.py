"""The demonstration stage: generate problems with completions, on which SFT trains.

The completions replace those of a teacher model (`rapid.stages.distill`). A share of the generated
completions has a deliberate mistake. The files and the manifest's `stage` are those of
distillation.
"""

import random
import sys
from pathlib import Path

from rapid.artifacts.demonstrations import Demonstration, Lesson
from rapid.artifacts.files import read_jsonl, write_jsonl
from rapid.artifacts.manifests import record_job, verify_inputs
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from rapid.benchmarks.prompts import render_prompt_and_message
from rapid.config.specs import DemonstrateSpec


def demonstrate(spec: DemonstrateSpec, train: Path, folder: Path) -> None:
    """Write `folder`/samples.jsonl (`Demonstration` rows) and `folder`/manifest.json.

    No generated problem is in train.jsonl or test.jsonl, or among the first `spec.reserved` test
    problems, which another experiment uses.

    Args:
        train: the training problems, train.jsonl; test.jsonl is in the same folder.
    """
    benchmark, files = BENCHMARKS[spec.benchmark], (train, train.with_name("test.jsonl"))
    inputs = verify_inputs(*files)
    with record_job("distill", spec, folder, inputs, ["samples.jsonl"]) as notes:
        existing_contents = {
            problem.normalized_content
            for file in files
            for problem in read_jsonl(file, benchmark.record)
        }
        # `rapid.stages.prepare` draws the reserved problems first, as part "test". Drawing that
        # part here too excludes them, because no two parts have a problem in common.
        # More problems are drawn than needed, because existing ones are removed below.
        count = spec.demonstrations + len(existing_contents)
        counts = {"test": spec.reserved, "demonstrations": count}
        exercises = draw_exercises(benchmark, spec.data_seed, counts)["demonstrations"]
        new_exercises = [
            exercise
            for exercise in exercises
            if exercise.problem.normalized_content not in existing_contents
        ]
        rng, rows = random.Random(spec.data_seed), []
        for problem, correct, mistakes in new_exercises[: spec.demonstrations]:
            prompts = render_prompt_and_message(benchmark.name, problem)
            lesson = Lesson(
                id=problem.id, prompt=prompts["prompt"], correct=correct, mistakes=list(mistakes)
            )
            completion = lesson.draw_completion(rng, spec.error_rate)
            rows.append(Demonstration(id=problem.id, **prompts, completion=completion))
        write_jsonl(folder / "samples.jsonl", rows)
        # As distillation records them; here each problem has one completion.
        notes |= {"kept": len(rows), "problems": len(rows)}
    print(f"{folder}: {len(rows):,} demonstrations", file=sys.stderr)
