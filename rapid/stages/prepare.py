"""The preparation stage: write a benchmark's problems into files.

1. train.jsonl and test.jsonl have one problem in each row, in the benchmark's schema. The problems
   are generated from a seed, or those of the published benchmark (`rapid.benchmarks.published`).
2. pretrain.jsonl has generated problems, each with correct and wrong completions (`Lesson`), on
   which the pipeline's base models are trained.
3. No problem is in two of the files. Contents are compared, because ids may differ.
"""

import sys
from pathlib import Path

from rapid.artifacts.demonstrations import Lesson
from rapid.artifacts.files import BadInput, write_jsonl
from rapid.artifacts.manifests import MANIFEST, hash_files, record_job
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Benchmark, Problem
from rapid.benchmarks.made import draw_exercises
from rapid.benchmarks.problem_source import FLAWED
from rapid.benchmarks.prompts import render_prompt
from rapid.benchmarks.published import load_source, select_problems
from rapid.config.specs import PrepareSpec


def prepare(spec: PrepareSpec, folder: Path) -> None:
    """Write train.jsonl, test.jsonl, pretrain.jsonl and manifest.json into `folder`.

    Raises:
        BadInput: there are too few problems, or one problem is in two of the files.
    """
    benchmark = BENCHMARKS[spec.benchmark]
    parts, lessons = _generate_problems(spec, benchmark)
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
            "rewritten": published.rewritten,
            "split": "by data_seed" if len(published.parts) == 1 else "the source's",
        }
        if published.rewritten:
            print(
                f"{spec.benchmark}: problems rewritten, because they were written for an earlier "
                f"version: {len(published.rewritten):,}; {folder / MANIFEST} lists them",
                file=sys.stderr,
            )
        for id, why in published.dropped.items():
            print(f"{spec.benchmark}: {id} is left out: {why}", file=sys.stderr)
    check_leaks(parts)
    rows = {"train.jsonl": parts["train"], "test.jsonl": parts["test"], "pretrain.jsonl": lessons}
    for source in sources:
        if any((folder / file).resolve().is_relative_to(source.resolve()) for file in rows):
            raise BadInput(
                f"benchmarks.{spec.benchmark}.source: this job would write over files of "
                f"{source}: move the source elsewhere"
            )
    counts = {file: len(part) for file, part in rows.items()}
    flawed = {
        name: {problem.id: problem.flaw for problem in parts[name] if problem.flaw}
        for name in ("train", "test")
    }
    flawed = {name: flaws for name, flaws in flawed.items() if flaws}
    with record_job("prepare", spec, folder, hash_files(*sources), list(rows)) as notes:
        for file, part in rows.items():
            write_jsonl(folder / file, part)
        notes |= {"rows": counts, **origin} | ({FLAWED: flawed} if flawed else {})
    sizes = [f"{count:,} {file.removesuffix('.jsonl')}" for file, count in counts.items()]
    print(f"{folder}: {', '.join(sizes)}", file=sys.stderr)
    for name, flaws in flawed.items():
        print(
            f"{spec.benchmark}: flawed statements: {len(flaws)} of {len(parts[name])} {name} "
            f"problems; {folder / MANIFEST} lists them",
            file=sys.stderr,
        )


def _generate_problems(
    spec: PrepareSpec, benchmark: Benchmark
) -> tuple[dict[str, list[Problem]], list[Lesson]]:
    """Generate problems, and the lessons for pre-training.

    Returns:
        Problems by part: "pretrain"; "test" and "train" unless they come from another source;
        "reserved" if there are any. And the lessons, which are made of the part "pretrain".
    """
    # Parts are drawn in this order. A part does not depend on the sizes of the parts after it.
    counts = {"test": spec.test, "train": spec.train} if spec.source == "embedded" else {}
    counts |= {"pretrain": spec.demonstrations}
    names = {}
    if spec.reserved:
        # `reserved` counts another experiment's test problems. Draw them first, which keeps them
        # out of all other parts, and this experiment's test problems last. Then the training
        # problems and the lessons are the same as in the other experiment, and so is the base
        # model.
        counts |= {"test": spec.reserved, "validation": spec.test}
        names = {"test": "reserved", "validation": "test"}
    exercises = draw_exercises(benchmark, spec.data_seed, counts)
    lessons = [
        Lesson(
            id=problem.id,
            prompt=render_prompt(benchmark.name, problem, template=benchmark.pretrain_template),
            correct=correct,
            mistakes=list(mistakes),
        )
        for problem, correct, mistakes in exercises["pretrain"]
    ]
    parts = {
        names.get(part, part): [exercise.problem for exercise in part_exercises]
        for part, part_exercises in exercises.items()
    }
    return parts, lessons


def check_leaks(parts: dict[str, list[Problem]]) -> None:
    """Check that no problem is in two parts; spaces and letter case are ignored.

    Raises:
        BadInput: a problem is in two parts. The message has the ids of the first 20 such pairs.
    """
    first_occurrences: dict[str, tuple[str, str]] = {}
    leaks = []
    for part, problems in parts.items():
        for problem in problems:
            first_part, first_id = first_occurrences.setdefault(
                problem.normalized_content, (part, problem.id)
            )
            if first_part != part:
                leaks.append(f"{first_part} {first_id} equals {part} {problem.id}")
    if leaks:
        rest = f" and {len(leaks) - 20} more" if len(leaks) > 20 else ""
        raise BadInput(f"the same problem is in two parts: {'; '.join(leaks[:20])}{rest}")
