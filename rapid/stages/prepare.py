"""The preparation stage: a benchmark's problems, as files.

1. train.jsonl and test.jsonl are rows of the benchmark's record: made from a seed, or those of the
   real benchmark (`rapid.benchmarks.published`).
2. pretrain.jsonl has made problems with what may be answered to them (`Lesson`); the base models of
   the pipeline are trained on it.
3. No problem is in two of them. Ids say nothing about that: the contents are compared.
"""

import sys
from pathlib import Path

from rapid.artifacts.demonstrations import Lesson
from rapid.artifacts.files import BadInput, write_jsonl
from rapid.artifacts.manifests import begin, digests, write_manifest
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Problem
from rapid.benchmarks.made import make
from rapid.benchmarks.prompts import render
from rapid.benchmarks.published import choose, load
from rapid.config.specs import PrepareSpec


def prepare(spec: PrepareSpec, folder: Path) -> None:
    """Write train.jsonl, test.jsonl, pretrain.jsonl and manifest.json into `folder`.

    Raises:
        BadInput: the problems asked for cannot be had, or one is in two of the files.
    """
    embedded = spec.source == "embedded"
    counts = {"test": spec.test, "train": spec.train}
    # The order matters: a part does not depend on the sizes of the parts after it.
    made = (counts if embedded else {}) | {"pretrain": spec.demonstrations}
    names = {}
    if spec.reserved:
        # What another experiment tests on is made first, and left out; our own test problems last:
        # training problems and lessons, and so the model, are the other's.
        made |= {"test": spec.reserved, "validation": spec.test}
        names = {"test": "reserved", "validation": "test"}
    benchmark = BENCHMARKS[spec.benchmark]
    exercises = make(benchmark, spec.data_seed, made)
    parts = {names.get(part, part): [e.problem for e in found] for part, found in exercises.items()}
    inputs, notes = [], {"source": f"rapid.benchmarks.{spec.benchmark}.made"}
    if not embedded:
        published = load(benchmark, spec.source)
        parts |= choose(published, benchmark, counts, spec.data_seed)
        inputs = [Path(spec.source)] if spec.source != "hub" else []
        notes = {
            "source": published.source,
            "left_out": published.dropped,
            "renamed": published.renamed,
            "split": "by data_seed" if len(published.parts) == 1 else "the source's",
        }
        for id, why in published.dropped.items():
            print(f"{spec.benchmark}: {id} is left out: {why}", file=sys.stderr)
    refuse_leaks(parts)
    lessons = [
        Lesson(
            id=exercise.problem.id,
            prompt=render(spec.benchmark, exercise.problem, template=benchmark.lesson_template),
            correct=exercise.correct,
            mistakes=list(exercise.mistakes),
        )
        for exercise in exercises["pretrain"]
    ]
    rows = {"train.jsonl": parts["train"], "test.jsonl": parts["test"], "pretrain.jsonl": lessons}
    for source in inputs:
        if any((folder / file).resolve().is_relative_to(source.resolve()) for file in rows):
            raise BadInput(
                f"benchmarks.{spec.benchmark}.source: {source} is where this job writes: move it"
            )
    begin(folder, *rows)
    for file, part in rows.items():
        write_jsonl(folder / file, part)
    counts = {file: len(part) for file, part in rows.items()}
    written = [folder / file for file in rows]
    write_manifest(folder, "prepare", spec, digests(*inputs), written, rows=counts, **notes)
    counted = [f"{count:,} {file.removesuffix('.jsonl')}" for file, count in counts.items()]
    print(f"{folder}: {', '.join(counted)}", file=sys.stderr)


def refuse_leaks(parts: dict[str, list[Problem]]) -> None:
    """Check that no problem is in two parts. Spaces and letter case make no difference.

    Raises:
        BadInput: with the ids of all such pairs, the first twenty of them.
    """
    owners: dict[str, tuple[str, str]] = {}
    leaks = []
    for part, problems in parts.items():
        for problem in problems:
            other, first = owners.setdefault(problem.same, (part, problem.id))
            if other != part:
                leaks.append(f"{other} {first} is {part} {problem.id}")
    if leaks:
        more = f" and {len(leaks) - 20} more" if len(leaks) > 20 else ""
        raise BadInput(f"the same problem is in two parts: {'; '.join(leaks[:20])}{more}")
