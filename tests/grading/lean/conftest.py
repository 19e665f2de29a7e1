"""A Lean checker that the tests share which only check proofs with it, and an image of Lean."""

import pytest

from rapid.grading.lean import LeanChecker, launch


@pytest.fixture(scope="package")
def lean():
    with LeanChecker(timeout=60) as checker:
        checker.wait_ready()
        yield checker


@pytest.fixture
def image(tmp_path, monkeypatch):
    """The path of an image of Lean's memory that only this test uses. It does not exist yet."""
    monkeypatch.setattr(launch, "get_image_path", lambda *_: tmp_path / "image")
    return tmp_path / "image"
