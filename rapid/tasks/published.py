"""The problems of the real benchmarks: from the Hugging Face hub, or from files.

1. A source is "hub" (the dataset of `HUB`, at the commit named there), a file (JSON lines, plain or
   gzip, in the benchmark's published format), or a folder that `datasets.load_dataset` reads, as a
   copy of the hub's dataset is.
2. Rows are in the part that their split is named after: `train` or `validation` to train on, `test`
   to evaluate on. Where a source has one part only (MBPP+), it is divided by the seed.
3. Rows that cannot be graded are left out, and so are `WEAK` ones of those to train on. The reason
   is recorded.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from rapid.records import BadInput, BadRow, CodeProblem, MathProblem, Problem, numbered_rows
from rapid.tasks import get_task
from rapid.tasks.hub_mbpp import NotARow, from_hub

# Dataset and commit.
HUB = {
    "mbpp_plus": ("evalplus/mbppplus", "b2d74c91837c3f2a20c1299ae98133cbe7cfa077"),
    "math": ("nlile/hendrycks-MATH-benchmark", "465bcdb36f5962aa3512891498966df785fc3c18"),
    "minif2f": ("cat-searcher/minif2f-lean4", "70a1249ce240667f6bcdd1ccd62f847f0e065d57"),
}
# MBPP+ tasks whose tests accept a constant or an unchanged argument, and what they accept: what
# `python -m rapid.tasks.weak_tests` prints for release v0.1.0. Of v0.2.0, the hub's, it finds none.
WEAK = {"Mbpp/115": "True, 1"}
PARTS = {"train": "train", "valid": "train", "validation": "train", "test": "test"}


class BadSource(BadInput):
    """A source that gives no problems, or not those that are asked for."""


@dataclass
class Published:
    """What a source holds: problems by part ("train" and "test", or one of any name)."""

    source: str  # a path, or a dataset and its commit
    parts: dict[str, list[Problem]] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)  # id: why
    renamed: dict[str, str] = field(default_factory=dict)  # our id: the source's, a second time


def load(benchmark: str, source: str) -> Published:
    """Read all problems of a source.

    Raises:
        BadSource, BadRow: with what is wrong, and where.
    """
    found = Published("@".join(HUB[benchmark]) if source == "hub" else source)
    path = Path(source)
    if source == "hub" or path.is_dir():
        rows = _dataset(benchmark, source)
    elif path.is_file():
        rows = _file(benchmark, path)
    else:
        raise BadSource(
            f"benchmarks.{benchmark}.source: {source!r} is neither embedded nor hub, and there is no "
            "such file or folder"
        )
    seen: set[str] = set()
    for split, problem in rows:
        if why := unusable(problem):
            found.dropped[problem.id] = why
        else:
            found.parts.setdefault(PARTS.get(split, split), []).append(
                _with_its_own_id(problem, seen, found)
            )
    return found


def choose(
    found: Published, benchmark: str, counts: dict[str, int], seed: int
) -> dict[str, list[Problem]]:
    """Problems to train on and to evaluate on: so many of each, drawn by the seed where there are more.

    The test problems do not depend on how many are trained on. `found.dropped` gets those that would
    be trained on if they were not `WEAK`.

    Raises:
        BadSource: there are fewer.
    """
    rng = random.Random(f"{benchmark} {seed}")
    if len(found.parts) == 1:
        [problems] = found.parts.values()
        parts = divide(problems, counts["test"], rng)
    else:
        parts = {part: list(found.parts.get(part, [])) for part in ("test", "train")}
    weak = {problem.id for problem in parts["train"]} & WEAK.keys()
    found.dropped |= {id: f"not trained on: its tests accept {WEAK[id]}" for id in sorted(weak)}
    parts["train"] = [problem for problem in parts["train"] if problem.id not in weak]
    for part, problems in parts.items():
        if len(problems) < counts[part]:
            raise BadSource(
                f"benchmarks.{benchmark}.{part}: {counts[part]:,} asked for, there are "
                f"{len(problems):,}{_without(found)}"
            )
        if len(problems) > counts[part]:
            parts[part] = rng.sample(problems, counts[part])
    return parts


def divide(problems: list[Problem], test: int, rng: random.Random) -> dict[str, list[Problem]]:
    """`test` problems, drawn at random, and the others; the same problem under two ids stays together.

    MBPP+ has two such pairs: functions of different names with one description.
    """
    same: dict[str, list[Problem]] = {}
    for problem in problems:
        same.setdefault(sameness(problem), []).append(problem)
    parts: dict[str, list[Problem]] = {"test": [], "train": []}
    for group in rng.sample(list(same.values()), len(same)):
        fits = len(parts["test"]) + len(group) <= test
        parts["test" if fits else "train"] += group
    return parts


def sameness(problem: Problem) -> str:
    """Equal for problems whose contents differ at most in spaces and letter case."""
    return "".join(problem.content.split()).casefold()


def unusable(problem: Problem) -> str:
    """Why no completion of this problem could be graded; "" where it could."""
    match problem:
        case MathProblem() if not problem.answer.strip():
            return "empty answer"
        case CodeProblem() if not problem.base_input and not problem.plus_input:
            return "no inputs"
    return ""


def _without(found: Published) -> str:
    if not found.dropped:
        return ""
    return f"; left out: {', '.join(f'{id} ({why})' for id, why in found.dropped.items())}"


def _with_its_own_id(problem: Problem, seen: set[str], found: Published) -> Problem:
    """The problem, by another id where an earlier one has the same: MATH has such a pair."""
    name, number = problem.id, 1
    while name in seen:
        number += 1
        name = f"{problem.id}#{number}"
    seen.add(name)
    if name == problem.id:
        return problem
    found.renamed[name] = problem.id
    [field] = [f for f in ("task_id", "unique_id", "name") if f in type(problem).model_fields]
    return problem.model_copy(update={field: name})


def _file(benchmark: str, path: Path) -> Iterable[tuple[str, Problem]]:
    for _, problem in numbered_rows(path, get_task(benchmark).row_type):
        yield getattr(problem, "split", "") or "all", problem


def _dataset(benchmark: str, source: str) -> Iterable[tuple[str, Problem]]:
    from datasets import load_dataset

    name, revision = HUB[benchmark] if source == "hub" else (source, None)
    try:
        splits = load_dataset(name, revision=revision)
    except Exception as error:  # of the hub's client, of the network, of the files: a dozen kinds
        raise BadSource(
            f"benchmarks.{benchmark}.source: {name} could not be loaded: {error}\nWithout a way to "
            "the hub, set source to a file with the problems, or to a folder with a copy of the dataset."
        ) from error
    for split, rows in splits.items():
        for number, row in enumerate(rows):
            try:
                yield split, _problem(benchmark, row)
            except (ValidationError, NotARow) as error:
                raise BadRow(f"{name}, {split}, row {number}: {error}") from None


def _problem(benchmark: str, row: dict) -> Problem:
    if benchmark == "mbpp_plus":
        row = from_hub(row)
    return get_task(benchmark).row_type.model_validate(row)
