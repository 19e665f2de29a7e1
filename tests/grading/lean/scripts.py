"""Runs and changes the scripts of the WebAssembly Lean in node."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rapid.grading.lean import ensure_lean, launch
from rapid.grading.lean.install import find_node

Change = tuple[str, str, int]  # pattern, replacement, in how many places


def run_node(script: str, *arguments: object, folder: Path | None = None) -> str:
    """Run JavaScript in node and return what it prints."""
    command = [find_node(), "-e", script, *map(str, arguments)]
    options = {"capture_output": True, "text": True, "check": True}
    return subprocess.run(command, cwd=folder, **options).stdout


def change_script(name: str, changes: list[Change], folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Let Lean run copies of its scripts in `folder`, one of them changed."""
    for script in launch.SCRIPTS.glob("*.js"):
        shutil.copy(script, folder)
    text = (folder / name).read_text(encoding="utf-8")
    for pattern, replacement, places in changes:
        text, count = re.subn(pattern, replacement, text)
        assert count == places, pattern
    (folder / name).write_text(text, encoding="utf-8")
    image = launch.get_image_path(ensure_lean(), "")  # of Lean's memory
    if image.exists():  # the changed code takes no part in making it
        shutil.copy(image, folder / "image")
    monkeypatch.setattr(launch, "SCRIPTS", folder)
    monkeypatch.setattr(launch, "get_image_path", lambda *_: folder / "image")
