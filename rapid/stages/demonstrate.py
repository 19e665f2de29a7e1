"""The demonstration stage: completions of made problems to imitate, a share with a mistake."""

import random
import sys
from pathlib import Path

from rapid.artifacts.demonstrations import Demonstration, Lesson
from rapid.artifacts.files import read_jsonl, write_jsonl
from rapid.artifacts.manifests import begin, verified, write_manifest
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import make
from rapid.benchmarks.prompts import render
from rapid.config.specs import DemonstrateSpec


def demonstrate(spec: DemonstrateSpec, train: Path, folder: Path) -> None:
    """Write `folder`/samples.jsonl (`Demonstration` rows) and `folder`/manifest.json.

    No problem of train.jsonl, of test.jsonl beside it, or of those reserved is among them.
    """
    task, samples = BENCHMARKS[spec.benchmark], folder / "samples.jsonl"
    files = train, train.with_name("test.jsonl")
    inputs = verified(*files)
    begin(folder, samples.name)
    taken = {problem.same for file in files for problem in read_jsonl(file, task.record)}
    # Those reserved are the first that `rapid.stages.prepare` makes.
    counts = {"test": spec.reserved, "demonstrations": spec.demonstrations + len(taken)}
    exercises = make(task, spec.data_seed, counts)["demonstrations"]
    others = [one for one in exercises if one.problem.same not in taken]
    rng, rows = random.Random(spec.data_seed), []
    for problem, correct, mistakes in others[: spec.demonstrations]:
        prompt, message = (render(task.name, problem, chat) for chat in (False, True))
        lesson = Lesson(id=problem.id, prompt=prompt, correct=correct, mistakes=list(mistakes))
        completion = lesson.demonstration(rng, spec.error_rate)
        given = {"id": problem.id, "prompt": prompt, "message": message}
        rows.append(Demonstration(**given, completion=completion))
    write_jsonl(samples, rows)
    count = len(rows)
    write_manifest(folder, "distill", spec, inputs, [samples], kept=count, problems=count)
    print(f"{folder}: {count:,} demonstrations", file=sys.stderr)
