"""Compare the results in two folders, apart from times.

    python -m tests.compare_results BEFORE AFTER

BEFORE and AFTER are folders in which the same command has run (`make tables`, `make studies`,
`make arena`). All weights, steps, evaluations, problems and demonstrations are compared. Weights are
equal bit for bit only on processors of one type. Exit status: 1 if something differs or is missing.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from pathlib import Path

from rapid.text import render_markdown_table

PATTERNS = (
    "**/model.safetensors",
    "**/steps.jsonl",
    "**/evaluation.json",
    "data/*/*.jsonl",
    "distilled/*/*.jsonl",
)
IGNORED_FOLDERS = {".venv", ".git", "tests", "checkpoints"}  # folders of a checkout without results
# Fields of steps.jsonl and evaluation.json that are not compared: times, the machine and the code.
IGNORED_FIELDS = {"seconds", "sampling", "grading", "sync", "backpropagation", "other", "optimizer"}
IGNORED_FIELDS |= {"commit", "hardware", "runtime"}


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.compare_results", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    counts, differing = compare_trees(options.before, options.after)
    headings = ["files", "equal", "different", "missing"]
    print(
        render_markdown_table(
            headings,
            [
                [name, *(str(counts_by_outcome[heading]) for heading in headings[1:])]
                for name, counts_by_outcome in counts
            ],
        )
    )
    print(*(f"{outcome}: {path}" for path, outcome in differing), sep="\n")
    if not any(counts_by_outcome["equal"] for _, counts_by_outcome in counts):
        print(f"{options.before} has no results")
        return 1
    return int(bool(differing))


def compare_trees(before: Path, after: Path) -> tuple[list[tuple[str, Counter]], list[tuple]]:
    """Return the counts of files by pattern and outcome, and the paths that are not equal."""
    counts, differing = [], []
    for pattern in PATTERNS:
        counts_by_outcome: Counter[str] = Counter()
        for path in list_results(before, pattern) | list_results(after, pattern):
            pair = before / path, after / path
            if not all(file.is_file() for file in pair):
                outcome = "missing"
            else:
                contents = {read_comparable_content(file) for file in pair}
                outcome = "equal" if len(contents) == 1 else "different"
            counts_by_outcome[outcome] += 1
            if outcome != "equal":
                differing.append((path, outcome))
        counts.append((pattern, counts_by_outcome))
    return counts, sorted(differing)


def list_results(root: Path, pattern: str) -> set[Path]:
    """Return the files of a pattern below a folder, relative to it."""
    paths = {path.relative_to(root) for path in root.glob(pattern)}
    return {path for path in paths if not IGNORED_FOLDERS & {*path.parts}}


def read_comparable_content(path: Path) -> str:
    """Return the digest of a file, or its records as JSON without IGNORED_FIELDS."""
    if path.name == "evaluation.json":
        return remove_ignored_fields(json.loads(path.read_text(encoding="utf-8")))
    if path.name == "steps.jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        return "\n".join(remove_ignored_fields(json.loads(line)) for line in lines)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def remove_ignored_fields(record: dict) -> str:
    """Return a record as JSON, without IGNORED_FIELDS."""
    return json.dumps({name: value for name, value in record.items() if name not in IGNORED_FIELDS})


if __name__ == "__main__":
    sys.exit(main())
