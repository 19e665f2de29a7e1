"""Manifests: what went in and came out, file by file."""

from pathlib import Path

from rapid.artifacts.files import sha256_file
from rapid.artifacts.manifests import digests


def test_a_folder_is_its_files_without_the_manifest(tmp_path):
    (tmp_path / "deep").mkdir()
    paths = [tmp_path / name for name in ("b", "deep/a", "manifest.json")]
    for path in paths:
        path.write_text(path.name)
    assert digests(tmp_path) == {str(path): sha256_file(path) for path in paths[:2]}


def test_paths_are_as_given_and_what_is_not_there_has_no_digest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("1")
    assert list(digests(Path("a"), Path("nothing"))) == ["a"]
