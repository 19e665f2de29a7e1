"""The preparation stage: a benchmark's problems, as files.

1. train.jsonl and test.jsonl are rows of the benchmark's record.
2. pretrain.jsonl has further problems with what may be answered to them (`Lesson`); the base
   models of the pipeline are trained on it.
3. No problem is in two of them. Ids say nothing about that: the contents are compared.
"""

from pathlib import Path

from rapid.provenance import write_manifest
from rapid.records import Problem, sha256_file, write_jsonl
from rapid.specs import PrepareSpec
from rapid.tasks import get_task
from rapid.tasks.embedded import Lesson, content, make


class Leak(ValueError):
    """A problem is in two parts of a benchmark."""


def prepare(spec: PrepareSpec, folder: Path) -> None:
    """Write train.jsonl, test.jsonl, pretrain.jsonl and manifest.json into `folder`.

    Raises:
        TooFewProblems: more problems are asked for than there are.
        Leak: a problem is in two of the files.
    """
    # The order matters: a part does not depend on the sizes of the parts after it.
    counts = {"test": spec.test, "train": spec.train, "pretrain": spec.demonstrations}
    parts = make(spec.benchmark, spec.data_seed, counts)
    refuse_leaks({part: [e.problem for e in exercises] for part, exercises in parts.items()})
    task = get_task(spec.benchmark)
    rows = {
        "train": [exercise.problem for exercise in parts["train"]],
        "test": [exercise.problem for exercise in parts["test"]],
        "pretrain": [
            Lesson(
                id=exercise.problem.id,
                prompt=task.prompt(exercise.problem),
                correct=exercise.correct,
                mistakes=list(exercise.mistakes),
            )
            for exercise in parts["pretrain"]
        ],
    }
    files = {f"{part}.jsonl": part for part in rows}
    for file, part in files.items():
        write_jsonl(folder / file, rows[part])
    write_manifest(
        folder / "manifest.json",
        "prepare",
        spec,
        inputs={},
        outputs={file: sha256_file(folder / file) for file in files},
        source=f"rapid.tasks.embedded.{spec.benchmark}",
        rows={file: len(rows[part]) for file, part in files.items()},
    )


def refuse_leaks(parts: dict[str, list[Problem]]) -> None:
    """Check that no problem is in two parts, nor twice in one.

    Raises:
        Leak: with the ids of the first such pair.
    """
    owners: dict[str, str] = {}
    for part, problems in parts.items():
        for problem in problems:
            owner = f"{part} {problem.id}"
            first = owners.setdefault(content(problem), owner)
            if first != owner:
                raise Leak(f"the same problem is {first} and {owner}")
