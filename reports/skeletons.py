"""Skeletons of generated problems: the text of a problem without its numbers.

Problems with the same skeleton need the same skill, so their scores are not independent. Analyses
with clustered errors treat the problems with one skeleton as a cluster.
"""

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rapid.artifacts.files import BadFile, sha256_file, write_jsonl
from rapid.artifacts.manifests import MANIFEST
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from reports.manifests import read_manifests
from reports.report_data import ReportData


def is_generated(data: ReportData, benchmark: str) -> bool:
    """Return whether problems are generated, and prepared; only then do they have skeletons."""
    source = data.problems[benchmark]
    return source.kind == "made" and source.prepared is not None


def regenerate_skeletons(data: ReportData, benchmark: str) -> dict[str, str]:
    """Return the skeleton of each test problem, by id.

    The problems are generated again, because the archive of a run has only the problems' digest.

    Raises:
        BadFile: the generated problems differ from those of the run.
    """
    (folder,) = (locate_job(f"data/{benchmark}") for locate_job in data.job_locators)
    path = f"{folder}/{MANIFEST}"
    job = read_manifests(data.root, [folder])[path]
    digest, skeletons = _draw_skeletons(
        benchmark, job.get_spec_value("data_seed"), job.get_spec_value("test")
    )
    if digest != job.outputs[f"{folder}/test.jsonl"]:
        raise BadFile(
            f"{path}: the generator of {benchmark} no longer makes the problems of this run: use "
            "the code of the run's commit"
        )
    return skeletons


@cache  # because a report needs them several times, and MBPP+'s problems take seconds to generate
def _draw_skeletons(benchmark: str, data_seed: int, count: int) -> tuple[str, dict[str, str]]:
    """Return the SHA-256 of test.jsonl with the generated problems, and their skeletons by id."""
    exercises = draw_exercises(BENCHMARKS[benchmark], data_seed, {"test": count})
    problems = [exercise.problem for exercise in exercises["test"]]
    with TemporaryDirectory() as scratch:
        write_jsonl(Path(scratch, "test.jsonl"), problems)
        digest = sha256_file(Path(scratch, "test.jsonl"))
    return digest, {problem.id: re.sub(r"\d+", "0", problem.content) for problem in problems}
