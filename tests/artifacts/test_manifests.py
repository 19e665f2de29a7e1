"""Manifests: what went in and came out, file by file."""

import json
from pathlib import Path

from rapid.artifacts.files import sha256_file
from rapid.artifacts.manifests import digests, write_manifest
from rapid.config.specs import TokenizerSpec

SPEC = TokenizerSpec(benchmarks=["math"], vocabulary=300)


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


def test_a_manifest_says_what_decides_a_result(tmp_path):
    for name in ("in", "out"):
        (tmp_path / name).write_text(name)
    read = digests(tmp_path / "in")
    write_manifest(tmp_path, "tokenizer", SPEC, read, [tmp_path / "out"], extra=1)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["spec"] == SPEC.model_dump()
    assert manifest["inputs"] == digests(tmp_path / "in")
    assert manifest["outputs"] == digests(tmp_path / "out")
    assert manifest["versions"]["python"] and manifest["commit"] and manifest["hardware"]
    assert manifest["extra"] == 1
