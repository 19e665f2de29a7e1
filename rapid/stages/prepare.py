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
from rapid.artifacts.manifests import hash_files, record_job
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Benchmark, Problem
from rapid.benchmarks.made import draw_exercises
from rapid.benchmarks.prompts import render_prompt
from rapid.benchmarks.published import load_source, select_problems
from rapid.config.specs import PrepareSpec


def prepare(spec: PrepareSpec, folder: Path) -> None:
    """Write train.jsonl, test.jsonl, pretrain.jsonl and manifest.json into `folder`.

    Raises:
        BadInput: the problems asked for cannot be had, or one is in two of the files.
    """
    benchmark = BENCHMARKS[spec.benchmark]
    parts, lessons = _make_parts(spec, benchmark)
    sources, origin = [], {"source": f"rapid.benchmarks.{spec.benchmark}.made"}
    if spec.source != "embedded":
        published = load_source(benchmark, spec.source)
        counts = {"test": spec.test, "train": spec.train}
        parts |= select_problems(published, benchmark, counts, spec.data_seed)
        sources = [Path(spec.source)] if spec.source != "hub" else []
        origin = {
            "source": published.source,
            "left_out": published.dropped,
            "renamed": published.renamed,
            "split": "by data_seed" if len(published.parts) == 1 else "the source's",
        }
        for id, why in published.dropped.items():
            print(f"{spec.benchmark}: {id} is left out: {why}", file=sys.stderr)
    refuse_leaks(parts)
    rows = {"train.jsonl": parts["train"], "test.jsonl": parts["test"], "pretrain.jsonl": lessons}
    for source in sources:
        if any((folder / file).resolve().is_relative_to(source.resolve()) for file in rows):
            raise BadInput(
                f"benchmarks.{spec.benchmark}.source: {source} is in the folder that this "
                "job writes: move it elsewhere"
            )
    counts = {file: len(part) for file, part in rows.items()}
    with record_job("prepare", spec, folder, hash_files(*sources), list(rows)) as notes:
        for file, part in rows.items():
            write_jsonl(folder / file, part)
        notes |= {"rows": counts, **origin}
    counted = [f"{count:,} {file.removesuffix('.jsonl')}" for file, count in counts.items()]
    print(f"{folder}: {', '.join(counted)}", file=sys.stderr)


def _make_parts(
    spec: PrepareSpec, benchmark: Benchmark
) -> tuple[dict[str, list[Problem]], list[Lesson]]:
    """Return made problems by part, and the lessons, which are the part "pretrain"."""
    # The order matters: a part does not depend on the sizes of the parts after it.
    counts = {"test": spec.test, "train": spec.train} if spec.source == "embedded" else {}
    counts |= {"pretrain": spec.demonstrations}
    names = {}
    if spec.reserved:
        # What another experiment tests on is made first, and left out; our own test problems last:
        # training problems and lessons, and so the model, are the other's.
        counts |= {"test": spec.reserved, "validation": spec.test}
        names = {"test": "reserved", "validation": "test"}
    exercises = draw_exercises(benchmark, spec.data_seed, counts)
    lessons = [
        Lesson(
            id=problem.id,
            prompt=render_prompt(benchmark.name, problem, template=benchmark.lesson_template),
            correct=correct,
            mistakes=list(mistakes),
        )
        for problem, correct, mistakes in exercises["pretrain"]
    ]
    parts = {
        names.get(part, part): [exercise.problem for exercise in drawn]
        for part, drawn in exercises.items()
    }
    return parts, lessons


def refuse_leaks(parts: dict[str, list[Problem]]) -> None:
    """Check that no problem is in two parts. Spaces and letter case make no difference.

    Raises:
        BadInput: with the ids of all such pairs, the first twenty of them.
    """
    owners: dict[str, tuple[str, str]] = {}
    leaks = []
    for part, problems in parts.items():
        for problem in problems:
            first_part, first_id = owners.setdefault(problem.normalized_content, (part, problem.id))
            if first_part != part:
                leaks.append(f"{first_part} {first_id} equals {part} {problem.id}")
    if leaks:
        rest = f" and {len(leaks) - 20} more" if len(leaks) > 20 else ""
        raise BadInput(f"the same problem is in two parts: {'; '.join(leaks[:20])}{rest}")
