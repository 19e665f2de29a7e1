"""Lists and copies the files of this repository."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def list_files(*patterns: str) -> list[str]:
    """Return the existing files that Git tracks or would track."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in output.splitlines() if (ROOT / name).is_file()]


def copy_checkout(folder: Path, *patterns: str) -> None:
    """Copy the repository's files that match these patterns (or all), with uncommitted changes."""
    for name in list_files(*patterns):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
