"""Loads published problems from the Hugging Face hub or from files.

1. A source is "hub" (the dataset and commit that the benchmark declares), a file (JSON lines, plain
   or gzip, in the benchmark's published format), or a folder that `datasets.load_dataset` can read,
   such as a copy of the hub's dataset.
2. A row's split decides its part: `train` and `validation` are for training, `test` is for
   evaluation. A source with only one split (MBPP+) is divided at random, by the seed.
3. Problems that cannot be graded are left out. Problems with weak tests
   (`Benchmark.weak_problems`) are left out of training. The reasons are recorded.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rapid.artifacts.files import BadFile, BadInput, Record, read_numbered_rows
from rapid.benchmarks.base import Benchmark, Problem
from rapid.hub import limit_hub_waiting

# The part to which a row belongs, by the row's split. A split with another name is its own part.
PARTS = {"train": "train", "valid": "train", "validation": "train", "test": "test"}


@dataclass
class PublishedProblems:
    """The problems of a source, before they are selected."""

    source: str  # a path, or dataset@commit
    parts: dict[str, list[Problem]] = field(default_factory=dict)  # by name: see `PARTS`
    dropped: dict[str, str] = field(default_factory=dict)  # why problems were left out, by id
    renamed: dict[str, str] = field(default_factory=dict)  # id in the source, by new unique id
    rewritten: list[str] = field(default_factory=list)  # ids of problems whose text was rewritten


def read_problems(path: Path, benchmark: Benchmark) -> dict[str, Problem]:
    """Read a benchmark's problems, by id, from published JSON lines, plain or gzip.

    Raises:
        BadFile: a line is not a problem or has the id of an earlier line, or there are no lines.
    """
    problems: dict[str, Problem] = {}
    for number, problem in read_numbered_rows(path, benchmark.record):
        if problem.id in problems:
            raise BadFile(f"{path}:{number}: an earlier problem has the same id, {problem.id!r}")
        problems[problem.id] = problem
    if not problems:
        raise BadFile(f"{path}: contains no problems")
    return problems


def load_source(benchmark: Benchmark, source: str) -> PublishedProblems:
    """Read all problems of a source.

    Raises:
        BadInput: the source does not exist or cannot be read. The message says where and why.
    """
    published = PublishedProblems("@".join(benchmark.hub) if source == "hub" else source)
    path = Path(source)
    if source == "hub" or path.is_dir():
        rows = _read_dataset(benchmark, source)
    elif path.is_file():
        rows = _read_file(benchmark, path)
    else:
        raise BadInput(
            f"benchmarks.{benchmark.name}.source: {source!r} is neither embedded nor hub, "
            "nor an existing file or folder"
        )
    used_ids: set[str] = set()
    for split, problem in rows:
        if reason := problem.unusable_reason:
            published.dropped[problem.id] = reason
        else:
            problem = _make_id_unique(problem, used_ids, published)
            published.parts.setdefault(PARTS.get(split, split), []).append(problem)
            published.rewritten += [problem.id] if problem.is_rewritten else []
    return published


def select_problems(
    published: PublishedProblems, benchmark: Benchmark, counts: dict[str, int], seed: int
) -> dict[str, list[Problem]]:
    """Select the problems of each part.

    If a part has more problems than needed, some are drawn at random, by the seed. The test
    problems do not depend on the number of training problems. Problems with weak tests are left out
    of training. These problems, and those of unused splits, are added to `published.dropped`.

    Args:
        counts: number of problems for "train" and "test".

    Raises:
        BadInput: a part has too few problems.
    """
    rng = random.Random(f"{benchmark.name} {seed}")
    # "test" comes first in `parts`, so its random draw does not depend on the training problems.
    if len(published.parts) == 1:
        [problems] = published.parts.values()
        parts = divide_problems(problems, counts["test"], rng)
    else:
        parts = {part: list(published.parts.get(part, [])) for part in ("test", "train")}
        for part in sorted(published.parts.keys() - parts):
            reasons = {
                problem.id: f"of the unused part {part}" for problem in published.parts[part]
            }
            published.dropped |= dict(sorted(reasons.items()))
    weak = {problem.id for problem in parts["train"]} & benchmark.weak_problems.keys()
    published.dropped |= {
        id: f"not trained on: its tests accept {benchmark.weak_problems[id]}" for id in sorted(weak)
    }
    parts["train"] = [problem for problem in parts["train"] if problem.id not in weak]
    for part, problems in parts.items():
        if len(problems) < counts[part]:
            raise BadInput(
                f"benchmarks.{benchmark.name}.{part}: {counts[part]:,} problems are needed, "
                f"but there are {len(problems):,}{_describe_dropped(published)}"
            )
        if len(problems) > counts[part]:
            parts[part] = rng.sample(problems, counts[part])
    return parts


def divide_problems(
    problems: list[Problem], test_count: int, rng: random.Random
) -> dict[str, list[Problem]]:
    """Divide problems at random into test problems, at most `test_count`, and training problems.

    Problems with the same content go to the same part. MBPP+ has two such pairs: their functions
    have different names, but the same description.
    """
    problems_by_content: dict[str, list[Problem]] = {}
    for problem in problems:
        problems_by_content.setdefault(problem.normalized_content, []).append(problem)
    parts: dict[str, list[Problem]] = {"test": [], "train": []}
    for group in rng.sample(list(problems_by_content.values()), len(problems_by_content)):
        fits = len(parts["test"]) + len(group) <= test_count
        parts["test" if fits else "train"] += group
    return parts


def _describe_dropped(published: PublishedProblems) -> str:
    reasons = ", ".join(f"{id} ({reason})" for id, reason in published.dropped.items())
    return f"; left out: {reasons}" if reasons else ""


def _make_id_unique(problem: Problem, used_ids: set[str], published: PublishedProblems) -> Problem:
    """Return the problem, with a new id if an earlier problem has its id (MATH has such a pair).

    The id is added to `used_ids`, and a new one to `published.renamed`.
    """
    unique_id, number = problem.id, 1
    while unique_id in used_ids:
        number += 1
        unique_id = f"{problem.id}#{number}"
    used_ids.add(unique_id)
    if unique_id == problem.id:
        return problem
    published.renamed[unique_id] = problem.id
    return problem.model_copy(update={problem.id_field: unique_id})


class SplitField(Record):
    """The field of a line of a file that names its split; most benchmarks' records lack it."""

    split: str | None = None


def _read_file(benchmark: Benchmark, path: Path) -> Iterable[tuple[str, Problem]]:
    """Yield the split and the problem of each line of a file; "all" for a line without a split."""
    problems = read_numbered_rows(path, benchmark.record)
    splits = read_numbered_rows(path, SplitField)
    for (_, problem), (_, row) in zip(problems, splits, strict=True):
        yield row.split or "all", problem


def _read_dataset(benchmark: Benchmark, source: str) -> Iterable[tuple[str, Problem]]:
    """Yield the split and the problem of each row of the hub's dataset, or of a folder's."""
    from datasets import load_dataset

    name, revision = benchmark.hub if source == "hub" else (source, None)
    limit_hub_waiting()
    try:
        splits = load_dataset(name, revision=revision)
    except Exception as error:  # many types, from the hub's client, the network or the files
        raise BadInput(
            f"benchmarks.{benchmark.name}.source: {name} could not be loaded: "
            f"{error}\nWithout access to the hub, set source to a file with the problems, "
            "or to a folder with a copy of the dataset."
        ) from error
    for split, rows in splits.items():
        for number, row in enumerate(rows):
            try:
                yield split, benchmark.record.model_validate(benchmark.from_hub(row))
            except ValueError as error:
                raise BadFile(f"{name}, {split}, row {number}: {error}") from None
