"""Fetching models from the Hugging Face hub: interrupted downloads, and the hub's cache."""

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from transformers import AutoModelForCausalLM

from rapid.config.specs import FetchSpec
from rapid.stages import fetch as fetch_stage
from rapid.stages.fetch import BadModel, fetch
from tests.subprocesses import wait_for

NAME, OTHER_NAME = "someone/something", "someone/else"
MAIN_COMMIT, OLD_COMMIT, OTHER_COMMIT = "a" * 40, "b" * 40, "d" * 40
COMMITS = {  # by the end of the hub's address of a revision
    f"{NAME}/revision/main": MAIN_COMMIT,
    f"{NAME}/revision/{MAIN_COMMIT}": MAIN_COMMIT,
    f"{NAME}/revision/old": OLD_COMMIT,
    f"{OTHER_NAME}/revision/main": OTHER_COMMIT,
}


def fetch_model(folder: Path, source: str = NAME, revision: str = "main") -> None:
    params = {"source": source, "revision": revision}
    fetch(FetchSpec(model="mine", params=params), folder)


@pytest.fixture(scope="module")
def sharded_model(toy_model, tmp_path_factory) -> Path:
    """The toy model with its weights in several files."""
    folder = tmp_path_factory.mktemp("sharded-model")
    shutil.copytree(toy_model, folder, dirs_exist_ok=True)
    (folder / "model.safetensors").unlink()
    model = AutoModelForCausalLM.from_pretrained(toy_model)
    model.save_pretrained(folder, max_shard_size=40_000)
    assert len(list_shards(folder)) > 2
    return folder


def list_shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.safetensors"))


@dataclass
class Hub:
    """A hub on this machine, on which all repositories have the same files."""

    files: dict[str, bytes]
    unavailable: set[str] = field(default_factory=set)
    wait_for_others: Callable[[], object] = lambda: None  # before it refuses an unavailable file
    downloads: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Return the status, the body and further headers of an answer."""
        name = path.rsplit("/", 1)[-1]
        if "/tree/" in path:
            listing = [
                {"type": "file", "path": file, "oid": "c" * 40, "size": len(content)}
                for file, content in self.files.items()
            ]
            return 200, json.dumps(listing).encode(), {}
        if "/api/" in path:
            commit = COMMITS[path.removeprefix("/api/models/")]
            return 200, json.dumps({"id": NAME, "sha": commit}).encode(), {}
        content, commit = self.files[name], path.split("/")[-2]
        if method == "GET":
            if name in self.unavailable:
                self.wait_for_others()
                return 503, b"", {}
            self.downloads.append(name)
        digest = hashlib.sha256(content).hexdigest()
        return 200, content, {"ETag": f'"{digest}"', "X-Repo-Commit": commit}


@pytest.fixture
def hub(sharded_model, tmp_path, monkeypatch):
    hub = Hub({path.name: path.read_bytes() for path in sharded_model.iterdir()})

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self) -> None:
            status, body, headers = hub.answer(self.command, self.path.partition("?")[0])
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    template = f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield hub
    server.shutdown()
    server.server_close()


def interrupt_download(hub: Hub, folder: Path) -> list[str]:
    """Download all files but the last shard, and return the names of the shards."""
    shards = sorted(name for name in hub.files if name.endswith(".safetensors"))
    hub.unavailable = {shards[-1]}
    others = [folder / name for name in hub.files if name != shards[-1]]
    # The client downloads files at the same time, and ends with the first error.
    hub.wait_for_others = lambda: wait_for(lambda: all(file.exists() for file in others))
    with pytest.raises(BadModel, match="cannot be downloaded"):
        fetch_model(folder)
    hub.unavailable, hub.downloads = set(), []
    assert not (folder / "manifest.json").exists()
    return shards


def assert_fetched(folder: Path, expected: Path) -> None:
    """Check that the folder has the files of a model, and no record of a download."""
    names = {path.name for path in expected.iterdir()}
    assert {path.name for path in folder.iterdir()} == {*names, "manifest.json"}
    for name in names:
        assert not (folder / name).is_symlink()
        assert (folder / name).read_bytes() == (expected / name).read_bytes()


def test_interrupted_download_is_continued(hub, sharded_model, tmp_path):
    shards = interrupt_download(hub, tmp_path / "mine")
    fetch_model(tmp_path / "mine")
    assert hub.downloads == shards[-1:]
    assert_fetched(tmp_path / "mine", sharded_model)
    manifest = json.loads((tmp_path / "mine/manifest.json").read_text())
    assert manifest["hub"] == f"{NAME}@{MAIN_COMMIT}"


def test_continued_download_replaces_damaged_files(hub, sharded_model, tmp_path):
    """As after a power failure, the size and the time of the file are right."""
    shards = interrupt_download(hub, tmp_path / "mine")
    file = tmp_path / "mine" / shards[0]
    status, content = file.stat(), bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    fetch_model(tmp_path / "mine")
    assert sorted(hub.downloads) == [shards[0], shards[-1]]
    assert_fetched(tmp_path / "mine", sharded_model)


@pytest.mark.parametrize("fields", [{"revision": "old"}, {"source": OTHER_NAME}])
def test_download_of_another_source_or_revision_is_not_continued(hub, toy_model, tmp_path, fields):
    """The other model has its weights in one file, so the shards must not stay."""
    interrupt_download(hub, tmp_path / "mine")
    hub.files = {path.name: path.read_bytes() for path in toy_model.iterdir()}
    fetch_model(tmp_path / "mine", **fields)
    assert sorted(hub.downloads) == sorted(hub.files)
    assert_fetched(tmp_path / "mine", toy_model)


def test_interrupted_download_does_not_mix_with_a_copied_folder(hub, toy_model, tmp_path):
    interrupt_download(hub, tmp_path / "mine")
    fetch_model(tmp_path / "mine", source=str(toy_model))
    assert_fetched(tmp_path / "mine", toy_model)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_download_is_kept_if_its_check_does_not_end(
    hub, sharded_model, tmp_path, monkeypatch, error
):
    def fail(*_, **options):
        raise error

    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(fetch_stage, "_load_model", fail)
        fetch_model(tmp_path / "mine")
    hub.downloads = []
    fetch_model(tmp_path / "mine")
    assert hub.downloads == []
    assert_fetched(tmp_path / "mine", sharded_model)


def test_bad_model_is_deleted(hub, tmp_path):
    hub.files = {name: hub.files[name] for name in hub.files if name != "tokenizer.json"}
    with pytest.raises(BadModel, match="is not a model with a tokenizer"):
        fetch_model(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("revision", ["main", "old", MAIN_COMMIT])
def test_interrupted_download_is_neither_used_nor_deleted_offline(
    hub, tmp_path, monkeypatch, revision
):
    shards = interrupt_download(hub, tmp_path / "mine")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BadModel, match=r"offline .*The hub's cache here has no copy"):
        fetch_model(tmp_path / "mine", revision=revision)
    assert list_shards(tmp_path / "mine") == shards[:-1]
    assert not (tmp_path / "mine/manifest.json").exists()


def test_download_is_not_finished_by_a_client_that_loses_the_hub(hub, tmp_path, monkeypatch):
    """The client then returns a folder that is not empty, with a warning."""
    shards = interrupt_download(hub, tmp_path / "mine")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **options: "folder")
    with pytest.raises(BadModel, match=f"{shards[-1]} is incomplete"):
        fetch_model(tmp_path / "mine")


def cache_model(model: Path, left_out: str = "") -> None:
    """Put a model into the hub's cache, as transformers does it."""
    repository = Path(constants.HF_HUB_CACHE, "models--" + NAME.replace("/", "--"))
    snapshot = repository / "snapshots" / MAIN_COMMIT
    for folder in (repository / "refs", repository / "blobs", snapshot):
        folder.mkdir(parents=True)
    (repository / "refs/main").write_text(MAIN_COMMIT)
    for path in model.iterdir():
        if path.name != left_out:
            shutil.copy(path, repository / "blobs" / path.name)
            (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")


@pytest.mark.parametrize("revision", ["main", MAIN_COMMIT])
def test_cached_model_is_copied_offline(hub, sharded_model, tmp_path, monkeypatch, revision):
    interrupt_download(hub, tmp_path / "mine")
    cache_model(sharded_model)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fetch_model(tmp_path / "mine", revision=revision)
    assert_fetched(tmp_path / "mine", sharded_model)
    manifest = json.loads((tmp_path / "mine/manifest.json").read_text())
    assert manifest["hub"] == f"{NAME}@{MAIN_COMMIT}"


def test_cached_model_is_copied_if_the_hub_cannot_be_reached(hub, toy_model, tmp_path, monkeypatch):
    cache_model(toy_model)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    fetch_model(tmp_path / "mine")
    assert_fetched(tmp_path / "mine", toy_model)


def test_cached_copy_without_all_weights_is_refused(hub, sharded_model, tmp_path, monkeypatch):
    shards = interrupt_download(hub, tmp_path / "mine")
    cache_model(sharded_model, left_out=shards[1])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BadModel, match=rf"The copy in the hub's cache, \S+, lacks {shards[1]}\."):
        fetch_model(tmp_path / "mine")
    assert list_shards(tmp_path / "mine") == shards[:-1]  # the download is kept


def test_cached_copy_without_a_listed_file_is_refused(hub, toy_model, tmp_path, monkeypatch):
    """The cache lists a repository's files if all of them were to be downloaded."""
    cache_model(toy_model, left_out="generation_config.json")
    [snapshot] = Path(constants.HF_HUB_CACHE).glob("models--*/snapshots/*")
    files = {path.name: {"size": 1, "blob_id": "c" * 40} for path in toy_model.iterdir()}
    listing = snapshot.parent.parent / f"trees/{snapshot.name}.json"
    listing.parent.mkdir()
    listing.write_text(json.dumps({"format_version": 1, "files": files}))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BadModel, match=r"is incomplete: 1 file\(s\) are missing \(generation_"):
        fetch_model(tmp_path / "mine")
