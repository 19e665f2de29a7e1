"""Changes of the scripts that run in node, for tests of a changed author or judge."""

import re
import shutil
from pathlib import Path

import pytest

from rapid.grading.lean import ensure_lean, launch

Change = tuple[str, str, int]  # pattern, replacement, in how many places


def change_script(name: str, changes: list[Change], folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Let Lean run copies of its scripts in `folder`, one of them changed."""
    for script in launch.SCRIPTS.glob("*.js"):
        shutil.copy(script, folder)
    text = (folder / name).read_text(encoding="utf-8")
    for pattern, replacement, places in changes:
        text, count = re.subn(pattern, replacement, text)
        assert count == places, pattern
    (folder / name).write_text(text, encoding="utf-8")
    image = launch.get_image_path(ensure_lean(), "")
    if image.exists():  # the changed code takes no part in making it
        shutil.copy(image, folder / "image")
    monkeypatch.setattr(launch, "SCRIPTS", folder)
    monkeypatch.setattr(launch, "get_image_path", lambda *_: folder / "image")
