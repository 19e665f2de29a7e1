"""Result files: the raw samples of a part, and where they come from."""

import json
from datetime import UTC, datetime
from pathlib import Path

from rapid.artifacts.files import write_json
from rapid.artifacts.manifests import commit, hardware, versions

COMMIT = commit()  # of the code that is imported now; the tree may move on while it is measured
FOLDER = Path(__file__).parent / "results"
PARTS = {
    "a": "RapidTrainer against TRL's GRPOTrainer",
    "b": "Where the time goes",
    "c": "Each saving over the plain loop",
    "d": "Cost against completion length and against N_inference",
    "e": "Distance to the floor",
    "f": "Peak memory",
    "g": "How long a verdict takes",
}


def write(folder: Path, part: str, rows: list[dict], missing: list[str], options: dict) -> Path:
    """Write a part's file.

    Args:
        rows: one for each row of the part's tables, with its raw samples.
        missing: what could not be measured, and why.
        options: those of the command.
    """
    path = folder / f"{part}.json"
    document = {
        "part": part,
        "title": PARTS[part],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": COMMIT,
        "hardware": hardware(),
        "threads": 1,
        "versions": versions(),
        "options": options,
        "missing": missing,
        "rows": rows,
    }
    write_json(path, document)
    return path


def read(folder: Path) -> dict[str, dict]:
    """The documents of a folder by part; parts that were not measured are left out."""
    files = {part: folder / f"{part}.json" for part in PARTS}
    return {
        part: json.loads(file.read_text(encoding="utf-8"))
        for part, file in files.items()
        if file.exists()
    }
