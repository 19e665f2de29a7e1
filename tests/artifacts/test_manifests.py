"""Manifests: digests of files, the commit, and names of processors."""

import re
import subprocess
from pathlib import Path

from rapid.artifacts import manifests
from rapid.artifacts.files import sha256_file
from rapid.artifacts.manifests import describe_processor, get_commit, hash_files


def test_folder_is_hashed_file_by_file_without_the_manifest(tmp_path):
    (tmp_path / "deep").mkdir()
    paths = [tmp_path / name for name in ("b", "deep/a", "manifest.json")]
    for path in paths:
        path.write_text(path.name)
    assert hash_files(tmp_path) == {str(path): sha256_file(path) for path in paths[:2]}


def test_paths_stay_relative_and_missing_files_have_no_digest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("1")
    assert list(hash_files(Path("a"), Path("nothing"))) == ["a"]


def test_the_commit_is_of_the_repository_of_the_code_and_not_of_an_enclosing_one(
    tmp_path, monkeypatch
):
    def git(*arguments: str) -> None:
        author = ["-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *author, *arguments]
        subprocess.run(command, check=True, capture_output=True)

    inside = tmp_path / "inside"
    inside.mkdir()
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "First")
    monkeypatch.setattr(manifests, "ROOT", inside)
    assert get_commit() == "unknown"
    monkeypatch.setattr(manifests, "ROOT", tmp_path)
    assert re.fullmatch("[0-9a-f]{40}", get_commit())
    for name in ("code.py", "dvc.lock"):
        (tmp_path / name).touch()
        git("add", name)
    git("commit", "--quiet", "--message", "Second")
    (tmp_path / "untracked").touch()
    (tmp_path / "dvc.lock").write_text("written by `dvc repro`")
    assert re.fullmatch("[0-9a-f]{40}", get_commit())
    (tmp_path / "code.py").write_text("1")
    assert re.fullmatch(r"[0-9a-f]{40}\+dirty", get_commit())


def test_processors_with_the_same_name_are_distinguished():
    cores = (
        "processor\t: {}\ncpu family\t: 25\nmodel\t\t: {}\nmodel name\t: AMD EPYC\nflags\t: a b\n\n"
    )
    zen3, zen4 = (cores.format(0, model) + cores.format(1, 9) for model in (1, 17))
    assert describe_processor(zen3) == "AMD EPYC (family 25, model 1)"
    assert describe_processor(zen4) == "AMD EPYC (family 25, model 17)"


def test_processor_without_a_name_gets_its_architecture(monkeypatch):
    assert describe_processor("processor\t: 0\nmodel name\t: ARMv7 rev 4\n") == "ARMv7 rev 4"
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert (
        describe_processor("processor\t: 0\nCPU part\t: 0xd0c\n")
        == describe_processor("")
        == "aarch64"
    )
