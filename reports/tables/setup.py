"""The paper's Tables 5 to 7: hyperparameters and versions, read from the manifests of the runs.

This module and captions.yaml have only the titles of rows; all values are read from manifests. The
spec in a manifest has the parameters of the job that wrote it.
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
from reports.report_data import ReportData
from reports.tables.layout import build_table, single_group
from reports.tables.notes import collect_origin_facts, collect_waiver_facts, load_descriptions
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Source, Table

ABSENT = object()  # a manifest lacks the key; None is a value (null in JSON)
NO_MANIFEST = "no run has a manifest.json with this value"
NOT_PREPARED = "the prepared problems have no manifest.json"
LONG_DIGEST = re.compile(r"\b[0-9a-f]{40,64}\b")  # a commit or SHA-256, which is shortened
MAX_SOURCES = 12  # largest number of manifests that report.html lists after a click on a cell

# A function that makes the cell of a row for one benchmark. It takes the source of the benchmark's
# problems, and the manifests of the benchmark's jobs by path.
RowFunction = Callable[[ProblemSource, dict[str, JobManifest]], Cell]
# Rows about a benchmark's problems: title -> text of the cell.
PROBLEMS: dict[str, Callable[[ProblemSource], str]] = {
    "Problems": lambda source: source.kind,
    "Source": lambda source: source.name,
    "Revision of the source": lambda source: source.revision,
    "SHA-256 of the source": lambda source: source.digest,
    "Training problems (SHA-256)": lambda source: _describe_part(source, "train"),
    "Test problems (SHA-256)": lambda source: _describe_part(source, "test"),
}


def build_sft_table(data: ReportData) -> Table:
    """Return Table 5: the hyperparameters of SFT, and how its demonstrations were made."""
    keys = load_descriptions()["tables"]["sft-setup"]["rows"]
    source = keys["made" if data.params.imitation.demonstrations else "teacher"]
    sections = [
        _build_manifest_rows(source, stage="distill"),
        _build_manifest_rows(keys["student"], algorithm=SFT),
    ]
    return _build_benchmark_table("sft-setup", data, sections)


def build_rl_table(data: ReportData) -> Table:
    """Return Table 6: the problems, the hyperparameters of RL, then those of each algorithm."""
    params = data.params
    names = [name for benchmark in params.benchmarks for name in params.list_algorithms(benchmark)]
    specific = []
    for algorithm in ALGORITHMS.values():
        if any(map(algorithm.matches_name, names)):
            keys = {
                f"{algorithm.label}: {title}": key
                for title, key in algorithm.hyperparameter_rows.items()
            }
            specific += _build_manifest_rows(keys, algorithm=algorithm)
    start = {} if params.training.start == BASE else {"Starts from": "training.start"}
    reuse = {} if params.training.reuse == 1 else {"Uses of each completion": "training.reuse"}
    shared = _build_manifest_rows(start | load_descriptions()["tables"]["rl"]["rows"] | reuse)
    problems = [(title, partial(_build_problem_cell, text)) for title, text in PROBLEMS.items()]
    return _build_benchmark_table("rl", data, [problems, shared, specific])


def build_versions_table(data: ReportData) -> Table:
    """Return Table 7: package versions, with notes on the hardware and commits."""
    manifests = list(data.manifests.values())
    packages = dict.fromkeys(name for manifest in manifests for name in manifest.versions)
    stages = {"distill": "distillations", "train": "training runs", "evaluate": "evaluations"}

    def read_version(manifest: JobManifest, package: str) -> Any:
        return manifest.versions.get(package, ABSENT)

    return build_table(
        "versions",
        data,
        [[(name, name) for name in packages]],
        single_group({"Version": partial(_build_value_cell, data.manifests, read_version)}),
        counts=[
            f"{sum(manifest.stage == stage for manifest in manifests)} {name}"
            for stage, name in stages.items()
        ],
        **collect_origin_facts(
            (manifest.hardware for manifest in manifests),
            (manifest.commit for manifest in manifests),
        ),
        **collect_waiver_facts([manifest.waived_layers for manifest in manifests]),
    )


def _build_manifest_rows(
    keys: dict[str, str], stage: str = "train", algorithm: Algorithm | None = None
) -> list[tuple[str, RowFunction]]:
    """Return a row for each title in `keys`, with the value of the title's key in manifests' specs.

    The manifests are those of a stage's jobs of an algorithm; None stands for all RL algorithms.
    """

    def read_value(manifest: JobManifest, key: str) -> Any:
        name = manifest.get_spec_value("run.algorithm") or ""
        is_selected = algorithm.matches_name(name) if algorithm else not SFT.matches_name(name)
        if manifest.stage != stage or not is_selected:
            return ABSENT
        return manifest.get_spec_value(key, ABSENT)

    return [
        (title, lambda _, manifests, key=key: _build_value_cell(manifests, read_value, key))
        for title, key in keys.items()
    ]


def _build_benchmark_table(
    name: str, data: ReportData, sections: list[list[tuple[str, RowFunction]]]
) -> Table:
    """Return a table with a column for each benchmark."""
    columns = {}
    for benchmark, source in data.problems.items():
        manifests = {
            path: manifest
            for path, manifest in data.manifests.items()
            if benchmark in map(manifest.get_spec_value, ("run.benchmark", "benchmark"))
        }
        columns[source.label] = lambda build_cell, arguments=(source, manifests): build_cell(
            *arguments
        )
    return build_table(name, data, sections, single_group(columns))


def _build_problem_cell(
    describe: Callable[[ProblemSource], str], source: ProblemSource, _: dict[str, JobManifest]
) -> Cell:
    """Return a cell about a source of problems, with the first digits of digests and commits.

    A click in report.html shows the text with all digits, which `describe` returns.
    """
    if source.prepared is None:
        return Cell(MISSING, reason=NOT_PREPARED)
    text = describe(source)
    short_text = LONG_DIGEST.sub(lambda digest: shorten_commit(digest[0], DIGITS), text)
    return Cell(short_text or NOT_APPLICABLE, detail=f"{text}." if short_text != text else "")


def _describe_part(source: ProblemSource, part: str) -> str:
    """Return the number of problems in a part, "train" or "test", and the SHA-256 of its file."""
    count_and_digest = source.get_part(part)
    return "{:,} ({})".format(*count_and_digest) if count_and_digest else ""


def _build_value_cell(
    manifests: dict[str, JobManifest], read_value: Callable[[JobManifest, str], Any], key: str
) -> Cell:
    """Return a cell with the value in these manifests, or with all values if they differ."""
    values = {path: read_value(manifest, key) for path, manifest in manifests.items()}
    values = {path: value for path, value in values.items() if value is not ABSENT}
    if not values:
        return Cell(MISSING, reason=NO_MANIFEST)
    # The keys are JSON, because lists and objects cannot be keys.
    distinct = list({json.dumps(value): value for value in values.values()}.values())
    if all(isinstance(value, int | float) for value in distinct):
        distinct.sort()
    named = f", of which {MAX_SOURCES} are named" if len(values) > MAX_SOURCES else ""
    return Cell(
        join_words([_format_value(value) for value in distinct], "or"),
        detail=f"In {len(values)} manifests{named}.",
        sources=tuple(
            Source(path.removesuffix("/manifest.json"), _format_value(value), path)
            for path, value in [*values.items()][:MAX_SOURCES]
        ),
    )


def _format_value(value: Any) -> str:
    """Return a value as text: 0.0001, 16, advantage, none."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
