"""Describes the source of a benchmark's problems for tables, figures, pages and dashboards.

Problems that are generated ("made") from a seed have the format of a benchmark, but are not that
benchmark. So everything that shows results names the source of the problems, as this module
describes it. The descriptions are built from the manifest of the prepared data
(`rapid.artifacts.manifests`).
"""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rapid.artifacts.manifests import Manifest
from rapid.benchmarks import BENCHMARKS
from rapid.text import join_words, shorten_commit

DIGITS = 12  # hexadecimal digits of a SHA-256 or commit that are printed
FLAWED = "flawed"  # key of the manifest; by part and id of a problem: what is wrong with it
# Nouns for a source, by its kind.
SOURCE_NOUNS = {"hub": "the hub's dataset", "file": "the file", "folder": "the folder"}


@dataclass(frozen=True)
class ProblemSource:
    """The source of a benchmark's problems.

    Args:
        benchmark: the benchmark's name in params.yaml.
        kind: "made" if problems are generated from a seed, "hub" for a dataset of the hub, or the
            user's "file" or "folder".
        name: for generated problems "data_seed N", where N is the seed, or "data_seed" if no data
            are prepared; else the name of the dataset, file or folder.
        revision: commit of the code that generated the problems, or of the dataset; "" for neither.
        digest: SHA-256 of the code that generated the problems, or of the file or folder; "" for a
            dataset, or if it is unknown.
        prepared: manifest of the prepared data; None if no data are prepared.
    """

    benchmark: str
    kind: Literal["made", "hub", "file", "folder"]
    name: str
    revision: str = ""
    digest: str = ""
    prepared: Manifest | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """The benchmark and the kind of source, short enough for a heading: MBPP+ (made)."""
        return f"{BENCHMARKS[self.benchmark].label} ({self.kind})"

    def describe(self) -> str:
        """Describe the source of published problems, with its revision or digest."""
        text = f"{BENCHMARKS[self.benchmark].label} from {SOURCE_NOUNS[self.kind]} {self.name}"
        revision = f" at {shorten_commit(self.revision, DIGITS)}" if self.revision else ""
        digest = f" (SHA-256 {self.digest[:DIGITS]})" if self.digest else ""
        return text + revision + digest

    def get_flaws(self, part: str) -> dict[str, str]:
        """Return what is wrong with problems of a part ("train" or "test"), by id."""
        flaws = (self.prepared.model_extra or {}).get(FLAWED, {}) if self.prepared else {}
        return flaws.get(part, {})

    def get_part(self, name: str) -> tuple[int, str] | None:
        """Return the number of problems in a part ("train" or "test"), and the file's SHA-256.

        None if the manifest of the prepared data does not have the part.
        """
        file, manifest = f"{name}.jsonl", self.prepared
        if not manifest:
            return None
        rows = (manifest.model_extra or {}).get("rows", {})
        digests = {Path(path).name: digest for path, digest in manifest.outputs.items()}
        return (rows[file], digests[file]) if file in rows and file in digests else None


def describe_sources(sources: Iterable[ProblemSource]) -> str:
    """Return a sentence that names these sources; "" if there are none."""
    sources = list(sources)
    clauses = [source.describe() for source in sources if source.kind != "made"]
    made_benchmarks = [source.benchmark for source in sources if source.kind == "made"]
    if made_benchmarks:
        labels = join_words([BENCHMARKS[name].label for name in made_benchmarks])
        clauses.insert(0, f"Made problems in the format of {labels}, not the published ones")
    return f"{'; '.join(clauses)}." if clauses else ""


def build_declared_source(
    benchmark: str, source: str, prepared: Manifest | None = None
) -> ProblemSource:
    """Return the source that params.yaml declares for a benchmark.

    Args:
        source: "embedded" (generated problems), "hub", or the path of a file or folder.
        prepared: the manifest of the data that were prepared from this source.
    """
    if source == "embedded":
        if prepared is None:
            return ProblemSource(benchmark, "made", "data_seed")
        seed, code = (prepared.spec.get(key, "") for key in ("data_seed", "code"))
        name = f"data_seed {seed}"
        return ProblemSource(benchmark, "made", name, prepared.commit, code, prepared)
    if source == "hub":
        recorded_dataset = (prepared.model_extra or {}).get("source", "") if prepared else ""
        dataset = recorded_dataset or "@".join(BENCHMARKS[benchmark].hub or ("unknown",))
        name, _, revision = dataset.partition("@")
        return ProblemSource(benchmark, "hub", name, revision, prepared=prepared)
    # `source` is a path. The manifest lists the file itself, or the files of the folder.
    digests, path = prepared.inputs if prepared else {}, Path(source).as_posix()
    name = Path(source).name or source
    if [*digests] == [path] or not (digests or Path(source).is_dir()):
        return ProblemSource(benchmark, "file", name, "", digests.get(path, ""), prepared)
    if not digests:
        return ProblemSource(benchmark, "folder", name, prepared=prepared)
    # The digest of a folder is the SHA-256 of the list that `sha256sum` prints for its files.
    lines = (f"{digests[path]}  {os.path.relpath(path, source)}\n" for path in sorted(digests))
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    return ProblemSource(benchmark, "folder", name, "", digest, prepared)


def read_source(benchmark: str, folder: Path | str, source: str) -> ProblemSource:
    """Return the source of the problems in the folder of a benchmark's data.

    Args:
        source: the source named in params.yaml, used if no data are prepared.

    Raises:
        BadFile: the manifest of the data is damaged.
    """
    manifest = Manifest.read(folder)
    if manifest is None or manifest.stage != "prepare":
        return build_declared_source(benchmark, source)
    return build_declared_source(benchmark, manifest.spec.get("source", source), manifest)


def find_source_of_file(benchmark: str, file: Path) -> ProblemSource:
    """Return the source of the problems that a training job reads from `file`.

    If a distill job wrote the file, the file has demonstrations. Then the result is the source of
    the problems that the demonstrations solve. If no job of the pipeline wrote the file, the file
    itself is the source.

    Raises:
        BadFile: a manifest is damaged.
    """
    manifest = Manifest.read(file.parent)
    if manifest is not None and manifest.stage == "distill":
        problems = [Path(path) for path in manifest.inputs if Path(path).name == "train.jsonl"]
        file = problems[0] if problems else file
    return read_source(benchmark, file.parent, str(file))
