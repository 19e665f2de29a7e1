"""The paper's Tables 5 to 7: hyperparameters and versions, read from the manifests of the runs.

This module and texts.yaml have the names of rows only; all values come from manifests.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from rapid.algorithms import ALGORITHMS, SFT
from rapid.algorithms.base import Algorithm
from rapid.benchmarks.problem_source import DIGITS, ProblemSource
from rapid.config.specs import BASE
from rapid.text import join_words, shorten_commit
from reports.manifests import JobManifest
from reports.measured import Measured
from reports.tables.layout import build_table, single_group
from reports.tables.notes import load_descriptions, origin_facts, waiver_facts
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Source, Table

ABSENT = object()  # a manifest lacks the key; None is a value (null in JSON)
NO_MANIFEST = "no run has a manifest.json that says this"
NOT_PREPARED = "the prepared problems have no manifest.json"
LONG = re.compile(r"\b[0-9a-f]{40,64}\b")  # a commit or a SHA-256, which is printed shortened
SHOWN = 12  # manifests that the box of a cell lists at most


# Makes a row's cell of one benchmark, from its source of problems and the manifests of its jobs.
RowCell = Callable[[ProblemSource, dict[str, JobManifest]], Cell]
# Rows about a benchmark's problems: title -> text of the cell.
PROBLEMS: dict[str, Callable[[ProblemSource], str]] = {
    "Problems": lambda source: source.kind,
    "Source": lambda source: source.name,
    "Revision of the source": lambda source: source.revision,
    "SHA-256 of the source": lambda source: source.digest,
    "Training problems (SHA-256)": lambda source: _numbered(source, "train"),
    "Test problems (SHA-256)": lambda source: _numbered(source, "test"),
}


def imitation(measured: Measured) -> Table:
    """Return Table 5: the hyperparameters of SFT, imitation of demonstrations."""
    keys = load_descriptions()["tables"]["imitation"]["rows"]
    source = keys["made" if measured.params.imitation.demonstrations else "teacher"]
    rows = [_rows(source, stage="distill"), _rows(keys["student"], algorithm=SFT)]
    return _by_benchmark("imitation", measured, rows)


def rl(measured: Measured) -> Table:
    """Return Table 6: the problems, the hyperparameters of RL, and those of single algorithms."""
    params = measured.params
    names = [name for benchmark in params.benchmarks for name in params.list_algorithms(benchmark)]
    specific = [
        row
        for algorithm in ALGORITHMS.values()
        if any(map(algorithm.matches_name, names))
        for row in _rows(
            {
                f"{algorithm.label}: {title}": key
                for title, key in algorithm.hyperparameter_rows.items()
            },
            algorithm=algorithm,
        )
    ]
    start = {} if params.training.start == BASE else {"Starts from": "training.start"}
    reuse = {} if params.training.reuse == 1 else {"Uses of each completion": "training.reuse"}
    shared = _rows(start | load_descriptions()["tables"]["rl"]["rows"] | reuse)
    problems = [(title, partial(_problem_cell, text)) for title, text in PROBLEMS.items()]
    return _by_benchmark("rl", measured, [problems, shared, specific])


def versions(measured: Measured) -> Table:
    """Return Table 7: package versions, with notes on the hardware and commits."""
    manifests = list(measured.manifests.values())
    packages = dict.fromkeys(name for manifest in manifests for name in manifest.versions)
    stages = {"distill": "distillations", "train": "training runs", "evaluate": "evaluations"}

    def version(package: str) -> Cell:
        return _agreed(measured.manifests, lambda manifest: manifest.versions.get(package, ABSENT))

    return build_table(
        "versions",
        measured,
        [[(name, name) for name in packages]],
        single_group({"Version": version}),
        counts=[
            f"{sum(manifest.stage == stage for manifest in manifests)} {name}"
            for stage, name in stages.items()
        ],
        **origin_facts(
            (manifest.hardware for manifest in manifests),
            (manifest.commit for manifest in manifests),
        ),
        **waiver_facts([manifest.waived for manifest in manifests]),
    )


def _rows(
    keys: dict[str, str], stage: str = "train", algorithm: Algorithm | None = None
) -> list[tuple[str, RowCell]]:
    """Return a row for each title, with its value in the manifests.

    Args:
        keys: title -> key of the value in a manifest's spec.
        stage: the stage of the jobs whose manifests are read.
        algorithm: the algorithm of these jobs; None stands for all RL algorithms.
    """

    def read(key: str, manifest: JobManifest) -> Any:
        name = manifest.value("run.algorithm") or ""
        picked = algorithm.matches_name(name) if algorithm else not SFT.matches_name(name)
        return manifest.value(key, ABSENT) if manifest.stage == stage and picked else ABSENT

    def cell(key: str, source: ProblemSource, manifests: dict[str, JobManifest]) -> Cell:
        return _agreed(manifests, partial(read, key))

    return [(title, partial(cell, key)) for title, key in keys.items()]


def _by_benchmark(
    name: str, measured: Measured, sections: list[list[tuple[str, RowCell]]]
) -> Table:
    """Return a table with a column for each benchmark."""
    columns = {}
    for benchmark, source in measured.problems.items():
        manifests = {
            path: manifest
            for path, manifest in measured.manifests.items()
            if benchmark in (manifest.value("run.benchmark"), manifest.value("benchmark"))
        }
        columns[source.label] = lambda cell, of=(source, manifests): cell(*of)
    return build_table(name, measured, sections, single_group(columns))


def _problem_cell(
    text_of: Callable[[ProblemSource], str], source: ProblemSource, _: dict[str, JobManifest]
) -> Cell:
    """Return a cell about a source of problems.

    The cell shows the first digits of a digest or commit, and its detail (a click in report.html)
    all digits.
    """
    if source.prepared is None:
        return Cell(MISSING, reason=NOT_PREPARED)
    text = text_of(source)
    printed = LONG.sub(lambda digest: shorten_commit(digest[0], DIGITS), text)
    return Cell(printed or NOT_APPLICABLE, detail=f"{text}." if printed != text else "")


def _numbered(source: ProblemSource, part: str) -> str:
    """Return the number of problems in a part, "train" or "test", and the SHA-256 of its file."""
    counted = source.get_part(part)
    return f"{counted[0]:,} ({counted[1]})" if counted else ""


def _agreed(manifests: dict[str, JobManifest], read: Callable[[JobManifest], Any]) -> Cell:
    """Return a cell with the value in these manifests, or with all values if they differ.

    Args:
        manifests: by path.
        read: returns a manifest's value, or ABSENT.
    """
    values = {path: read(manifest) for path, manifest in manifests.items()}
    values = {path: value for path, value in values.items() if value is not ABSENT}
    if not values:
        return Cell(MISSING, reason=NO_MANIFEST)
    # JSON is a key for lists and objects too.
    distinct = list({json.dumps(value): value for value in values.values()}.values())
    if all(isinstance(value, int | float) for value in distinct):
        distinct.sort()
    rest = f", of which {SHOWN} are named" if len(values) > SHOWN else ""
    return Cell(
        join_words([_text(value) for value in distinct], "or"),
        detail=f"In {len(values)} manifests{rest}.",
        sources=tuple(
            Source(path.removesuffix("/manifest.json"), _text(value), path)
            for path, value in [*values.items()][:SHOWN]
        ),
    )


def _text(value: Any) -> str:
    """Return a value as text: 0.0001, 16, advantage, none."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
