"""Whether two trees of results are the same but for times.

    python -m tests.compare_results BEFORE AFTER

compares folders in which the same command has run (`make tables`, `make studies`, `make arena`):
every model's weights, steps, evaluations, problems and demonstrations. The weights are the same
bits only on processors of one make. Exit status: 1 if something differs or is missing.
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
OTHER_FOLDERS = {".venv", ".git", "tests", "checkpoints"}  # in a checkout, of other things
# Of steps.jsonl and evaluation.json: seconds, and where and by what code they were spent.
TIMES = {"seconds", "sampling", "grading", "sync", "backpropagation", "other", "optimizer"}
TIMES |= {"commit", "hardware", "runtime"}


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.compare_results", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    counts, differing = compare_trees(options.before, options.after)
    heads = ["files", "equal", "different", "missing"]
    print(
        render_markdown_table(
            heads, [[name, *(str(row[head]) for head in heads[1:])] for name, row in counts]
        )
    )
    print(*(f"{kind}: {path}" for path, kind in differing), sep="\n")
    if not any(row["equal"] for _, row in counts):
        print(f"{options.before} has no results")
        return 1
    return int(bool(differing))


def compare_trees(before: Path, after: Path) -> tuple[list[tuple[str, Counter]], list[tuple]]:
    """Return counts of files by pattern and outcome, and the paths that are not equal."""
    counts, differing = [], []
    for pattern in PATTERNS:
        row: Counter[str] = Counter()
        for path in result_paths(before, pattern) | result_paths(after, pattern):
            pair = before / path, after / path
            if not all(file.is_file() for file in pair):
                outcome = "missing"
            else:
                outcome = "equal" if content(pair[0]) == content(pair[1]) else "different"
            row[outcome] += 1
            if outcome != "equal":
                differing.append((path, outcome))
        counts.append((pattern, row))
    return counts, sorted(differing)


def result_paths(root: Path, pattern: str) -> set[Path]:
    """Return the files of a pattern below a folder, relative to it."""
    paths = {path.relative_to(root) for path in root.glob(pattern)}
    return {path for path in paths if not OTHER_FOLDERS & {*path.parts}}


def content(path: Path) -> str:
    """Return what has to be equal of a file: its digest, or its records without times."""
    if path.name == "evaluation.json":
        return without_times(json.loads(path.read_text(encoding="utf-8")))
    if path.name == "steps.jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        return "\n".join(without_times(json.loads(line)) for line in lines)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_times(record: dict) -> str:
    """Return a record as JSON, without what differs from one run to the next."""
    return json.dumps({name: value for name, value in record.items() if name not in TIMES})


if __name__ == "__main__":
    sys.exit(main())
