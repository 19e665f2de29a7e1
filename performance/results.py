"""The summary.jsonl of a folder, which has the figures of all parts.

Each part has a line with the code and the machine that its figures come from, and then one for each
row of its tables.
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

COMMIT = get_commit()  # of the code that is imported now; the tree may move on while it is measured
if COMMIT == "unknown":  # a copy without its repository, as it is sent to a machine with a GPU
    COMMIT = os.environ.get("RAPID_COMMIT", COMMIT)
FOLDER = Path(__file__).parent / "results"
SUMMARY = "summary.jsonl"


def write_part(folder: Path, part: str, rows: list[dict], missing: list[str], options: dict):
    """Put a part's rows into the summary.

    Args:
        missing: what could not be measured, and why.
        options: those of the command.
    """
    date = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"date": date, **_describe_source(options), "missing": missing, "rows": rows}
    write_summary(folder, read(folder) | {part: document})


def read_rows(folder: Path, part: str, options: dict) -> list[dict]:
    """Return a part's rows, if they have the same commit, machine and options.

    Tests of which one failed are left out, to be run again. Whether files differ from the commit
    does not matter: those of the results themselves do.
    """
    document, source = read(folder).get(part, {"commit": "", "rows": []}), _describe_source(options)
    for origin in (document, source):
        origin["commit"] = origin["commit"].removesuffix("+dirty")
    if document | source != document or any(row.get("failed") for row in document["rows"]):
        return []
    return document["rows"]


def _describe_source(options: dict) -> dict:
    """Return the code, the machine and the options that figures come from."""
    machine = {"hardware": hardware_in_child(), "versions": get_versions()}
    return {"commit": COMMIT, **machine, "options": options}


@cache
def hardware_in_child() -> str:
    """Return the hardware, as a child sees it: loops are forked, where CUDA was not used yet."""
    with ProcessPoolExecutor(1, get_context("fork")) as child:
        return child.submit(describe_hardware).result()


def write_summary(folder: Path, documents: dict[str, dict]) -> None:
    """Write the summary of all parts."""
    lines = []
    for part, document in sorted(documents.items()):
        head = {name: document[name] for name in document if name != "rows"}
        lines += [{"part": part, **line} for line in (head, *document["rows"])]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_text(folder / SUMMARY, text)


def read(folder: Path) -> dict[str, dict]:
    """Return the documents of the parts that were measured, each with its `rows`."""
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
