"""Result files of a folder: summary.jsonl, which is kept, and samples/, which git ignores.

In summary.jsonl a part has a line that says where its figures come from, and then one for each row
of its tables.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

from rapid.artifacts.files import write_json, write_text
from rapid.artifacts.manifests import commit, hardware, versions

COMMIT = commit()  # of the code that is imported now; the tree may move on while it is measured
FOLDER = Path(__file__).parent / "results"
SUMMARY = "summary.jsonl"


def write(folder: Path, part: str, rows: list[dict], missing: list[str], options: dict) -> None:
    """Write a part's raw samples, and put its figures into the summary.

    Args:
        rows: one for each row of the part's tables: labels, figures and `samples`.
        missing: what could not be measured, and why.
        options: those of the command.
    """
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": COMMIT,
        "hardware": hardware(),
        "versions": versions(),
        "options": options,
        "missing": missing,
    }
    write_json(folder / "samples" / f"{part}.json", document | {"rows": rows})
    figures = [{name: row[name] for name in row if name != "samples"} for row in rows]
    write_summary(folder, read(folder) | {part: document | {"rows": figures}})


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
