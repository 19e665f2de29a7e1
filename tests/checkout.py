"""The files of this repository, and copies of it."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def listed(*patterns: str) -> list[str]:
    """Return the files that exist here and that Git tracks or would track."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in output.splitlines() if (ROOT / name).is_file()]


def copy_checkout(folder: Path, *patterns: str) -> None:
    """Copy these files as they are."""
    for name in listed(*patterns):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
