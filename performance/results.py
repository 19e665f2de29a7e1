"""Reads and writes summary.jsonl, which has the figures of all parts of the benchmark.

Each part has one line with the commit, the machine and the options of its measurement, followed by
one line for each row of its tables. In Python a part is a document: a dict of the first line's
values, and of the rows under the key `rows`.
"""

import json
import os
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from rapid.artifacts.files import write_text
from rapid.artifacts.manifests import describe_hardware, get_commit, get_versions

COMMIT = get_commit()  # at import, since HEAD may move during a measurement
if COMMIT == "unknown":  # a copy without .git, for example on a remote machine with a GPU
    COMMIT = os.environ.get("RAPID_COMMIT", COMMIT)
FOLDER = Path(__file__).parent / "results"
SUMMARY = "summary.jsonl"


def write_part(folder: Path, part: str, rows: list[dict], missing: list[str], options: dict):
    """Write a part into the folder's summary, in place of what the summary has of this part.

    Args:
        missing: lines on what could not be measured, and why.
        options: the command's options that affect the figures.
    """
    date = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"date": date, **_describe_source(options), "missing": missing, "rows": rows}
    write_summary(folder, read_parts(folder) | {part: document})


def read_rows(folder: Path, part: str, options: dict) -> list[dict]:
    """Return a part's rows for `--resume`.

    The list is empty if they were measured with another commit, machine, package version or option,
    or if one of them is a test that failed. The suffix "+dirty" of a commit is ignored, because
    writing the results changes files of the repository.
    """
    document = read_parts(folder).get(part, {"commit": "", "rows": []})
    source = _describe_source(options)
    for origin in (document, source):
        origin["commit"] = origin["commit"].removesuffix("+dirty")
    if document | source != document or any(row.get("failed") for row in document["rows"]):
        return []
    return document["rows"]


def _describe_source(options: dict) -> dict:
    """Return the commit, the machine, the versions and the options of a measurement."""
    machine = {"hardware": describe_hardware_in_child(), "versions": get_versions()}
    return {"commit": COMMIT, **machine, "options": options}


@cache
def describe_hardware_in_child() -> str:
    """Call `describe_hardware` in a forked child.

    `describe_hardware` initialises CUDA. If this process did that, loops that are forked later
    could not use CUDA.
    """
    with ProcessPoolExecutor(1, get_context("fork")) as executor:
        return executor.submit(describe_hardware).result()


def write_summary(folder: Path, documents: dict[str, dict]) -> None:
    """Write the summary of all parts into a folder."""
    lines = []
    for part, document in sorted(documents.items()):
        first_line = {name: document[name] for name in document if name != "rows"}
        lines += [{"part": part, **line} for line in (first_line, *document["rows"])]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_text(folder / SUMMARY, text)


def read_parts(folder: Path) -> dict[str, dict]:
    """Return the documents of the parts in a folder's summary, by letter."""
    documents: dict[str, dict] = {}
    path = folder / SUMMARY
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        row = json.loads(line)
        part = row.pop("part")
        if part in documents:
            documents[part]["rows"].append(row)
        else:
            documents[part] = row | {"rows": []}
    return documents
