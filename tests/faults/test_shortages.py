"""A machine without room, permission, memory or a hub: one line says so, and the job can be repeated."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from rapid.artifacts.files import sha256_file, write_jsonl
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from rapid.config.specs import FetchSpec
from rapid.errors.shortages import describe_shortage
from tests.conftest import ROOT, save_qwen2
from tests.processes.test_fork_server import run_rapid
from tests.stages.test_ungraded import make_train_spec
from tests.subprocesses import ending, wait_for

# Root may write everywhere; without its capabilities the modes of files hold for it too.
POWERLESS = [] if os.geteuid() else ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
TWENTY = range(20)
PATIENCE = 300  # seconds until a test gives up
WEIGHTS = "model.safetensors"
# Forks commands from a process that has imported their modules, each within its own limits.
SERVER = """
import importlib, os, resource, sys
from pathlib import Path
from rapid import cli
from rapid.processes.fork_server import serve_requests
PAGE = resource.getpagesize()
def prepare():
    for name in sys.argv[3:]:
        module, _, function = name.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
def run(arguments):
    if more := os.environ.get("FAULT_MEMORY"):
        held = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
        resource.setrlimit(resource.RLIMIT_AS, (held + int(more), held + int(more)))
    return cli.run(arguments)
serve_requests(Path(sys.argv[1]), int(sys.argv[2]), prepare, run, lambda arguments: None)
"""


@contextmanager
def serving(folder: Path, *imports: str, prefix=(), env=None):
    """Run a server of commands, and yield its socket."""
    socket, log = folder / "socket", folder / "log"
    command = [*prefix, sys.executable, "-c", SERVER, str(socket), str(os.getpid()), *imports]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    with ending(server):
        wait_for(lambda: socket.exists() or server.poll() is not None, PATIENCE)
        assert socket.exists(), log.read_text()
        yield socket


def error_line(ended: subprocess.CompletedProcess, command: str) -> str:
    """Return the line in which a command says why it failed; there is no traceback."""
    assert ended.returncode in (1, 2), ended.stderr
    assert "Traceback" not in ended.stderr
    [line] = [x for x in ended.stderr.splitlines() if x.startswith(f"rapid {command}: ")]
    return line


@contextmanager
def mounted(folder: Path, options: str):
    """Mount an empty file system in memory for a while."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    ended = subprocess.run(mount, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.skip(f"file systems cannot be mounted here: {ended.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


WALLS = ("0o555", "0o500", "0o000", "read-only", "a file")


@contextmanager
def walled(place: Path, wall: str):
    """Make a folder in which nothing can be written."""
    if wall == "read-only":
        with mounted(place, "ro,mode=777"):
            yield
        return
    if wall == "a file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(int(wall, 8))
    yield


class TestTraining:
    """A job that trains and saves a model, without room or memory."""

    @pytest.fixture(scope="class")
    def socket(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("training")
        with serving(folder, "rapid.stages.rehearsal:rehearse") as socket:
            yield socket

    @pytest.fixture(scope="class")
    def command(self, toy_model, tmp_path_factory) -> list[str]:
        data = tmp_path_factory.mktemp("data") / "train.jsonl"
        exercises = draw_exercises(BENCHMARKS["mbpp_plus"], 0, {"train": 4})["train"]
        write_jsonl(data, [exercise.problem for exercise in exercises])
        spec = make_train_spec()
        run = spec.run.model_copy(update={"benchmark": "mbpp_plus"})
        spec = spec.model_copy(update={"run": run})
        command = ["train", "--spec", spec.model_dump_json(), "--data", str(data)]
        return [*command, "--model", str(toy_model), "--out"]

    @pytest.fixture(scope="class")
    def undisturbed(self, socket, command, tmp_path_factory) -> tuple[str, int]:
        """Return the digest of the weights, and how many bytes the job writes."""
        out = tmp_path_factory.mktemp("undisturbed") / "run"
        ended = run_rapid(socket, *command, str(out))
        assert ended.returncode == 0, ended.stderr
        files = [path for path in out.rglob("*") if path.is_file()]
        size = sum(4096 * -(-path.stat().st_size // 4096) for path in files)
        return sha256_file(out / "model" / WEIGHTS), size

    @pytest.mark.slow
    @pytest.mark.fault("machine: disk full")
    @pytest.mark.parametrize("n", TWENTY)
    def test_a_full_disk_is_named_and_the_job_can_be_repeated(
        self, socket, command, undisturbed, tmp_path, n
    ):
        """The disk has room for about n twentieths of what the job writes."""
        digest, size = undisturbed
        with mounted(tmp_path / "disk", f"size={max(4096, size * n // 20 - 4096)}"):
            out = tmp_path / "disk/run"
            line = error_line(run_rapid(socket, *command, str(out)), "train")
            assert f"{out}: no space left on the disk: " in line and "Free some" in line
            assert not (out / "manifest.json").exists()
            if n % 5 == 0:
                resize = ["mount", "-o", "remount,size=0", str(tmp_path / "disk")]
                subprocess.run(resize, check=True)
                ended = run_rapid(socket, *command, str(out))
                assert ended.returncode == 0, ended.stderr
                assert (out / "manifest.json").exists()
                assert sha256_file(out / "model" / WEIGHTS) == digest

    @pytest.fixture(scope="class")
    def larger_model(self, toy_model, tmp_path_factory) -> Path:
        """A model of 2 million parameters; training it takes some 20 MB."""
        shape = {"hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 1}
        shape |= {"num_attention_heads": 4, "num_key_value_heads": 4}
        tokenizer = AutoTokenizer.from_pretrained(toy_model)
        folder = tmp_path_factory.mktemp("larger")
        return save_qwen2(folder, tokenizer, **shape, vocab_size=len(tokenizer))

    @pytest.mark.slow
    @pytest.mark.fault("machine: memory limit reached")
    @pytest.mark.parametrize("n", TWENTY)
    def test_a_limit_on_memory_is_named(
        self, socket, command, larger_model, tmp_path, monkeypatch, n
    ):
        """The job may have up to 9.5 MB more memory than it has at the start."""
        out = tmp_path / "run"
        monkeypatch.setenv("FAULT_MEMORY", str(500_000 * n))
        ended = run_rapid(socket, *command, str(out), "--model", str(larger_model))
        assert ended.returncode and not (out / "manifest.json").exists()
        assert "out of memory: " in ended.stderr or "ran out of memory" in ended.stderr, (
            ended.stderr
        )
        assert "Traceback" not in ended.stderr


@pytest.mark.fault("machine: disk full", times=8)
def test_every_error_of_torch_on_a_full_disk_is_recognized(tmp_path):
    """It depends on which write was the first that failed."""
    with mounted(tmp_path / "disk", "size=4096"):
        for size in range(3000, 7000, 500):
            with pytest.raises(RuntimeError) as refusal:
                torch.save("x" * size, tmp_path / "disk/file")
            assert describe_shortage(refusal.value).startswith("no space left on the disk: ")


@pytest.fixture(scope="module")
def powerless_socket(tmp_path_factory):
    folder = tmp_path_factory.mktemp("permission")
    with serving(folder, "rapid.stages.prepare", prefix=POWERLESS) as socket:
        yield socket


@pytest.mark.slow
@pytest.mark.fault("machine: no permission to write")
@pytest.mark.parametrize("inside", ["", "data/math"])
@pytest.mark.parametrize("wall", WALLS)
def test_a_folder_without_permission_is_named(powerless_socket, tmp_path, wall, inside):
    place = tmp_path / "place"
    sizes = {"data_seed": 0, "train": 4, "test": 4, "demonstrations": 20}
    spec = json.dumps({"benchmark": "math", **sizes})
    with walled(place, wall):
        ended = run_rapid(powerless_socket, "prepare", "--spec", spec, "--out", str(place / inside))
    line = error_line(ended, "prepare")
    assert str(place) in line
    assert ("in the way: " if wall == "a file" else "permission denied: ") in line
    assert not list(tmp_path.rglob("manifest.json"))


# The stand-in hub reads from a repository's name what to do with a request.
FILES = {"config.json": b"{}", WEIGHTS: b"x" * 100}
STATUSES = ["400", "401", "403", "404", "410", "429", "500", "502", "503", "504"]
BODIES = {"html": b"<html>a portal</html>", "empty": b"", "list": b"[1]", "null": b"null"}
WRONG = [*STATUSES, *BODIES, "silent", "hangs-up", "no-list", "short", "stops", "files-503"]


class Hub(BaseHTTPRequestHandler):
    """A hub that answers wrongly, slowly or not at all."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status: int, body: bytes, missing_bytes: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) + missing_bytes))
        self.send_header("ETag", '"abc"')
        self.send_header("X-Repo-Commit", "a" * 40)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
            self.wfile.flush()

    def do_GET(self) -> None:
        how, name = self.path.partition("stand-in/")[2].split("/")[0], self.path.rsplit("/", 1)[-1]
        files = self.server.files if how == "good" else FILES
        if how in STATUSES:
            self.answer(int(how), b"{}")
        elif how in BODIES:
            self.answer(200, BODIES[how])
        elif how == "silent":
            time.sleep(2 * PATIENCE)
        elif how == "hangs-up":
            self.close_connection = True
        elif "/tree/" in self.path:
            listing = [
                {"type": "file", "path": path, "oid": "a" * 40, "size": len(content)}
                for path, content in files.items()
            ]
            self.answer(200, b"[1]" if how == "no-list" else json.dumps(listing).encode())
        elif "/api/" in self.path:
            self.answer(200, json.dumps({"id": f"stand-in/{how}", "sha": "a" * 40}).encode())
        elif how == "files-503" and self.command == "GET":
            self.answer(503, b"")
        else:
            self.answer(200, files[name], missing_bytes=0 if how == "good" else 10)
            self.close_connection |= how == "short"
            if self.command == "GET" and how == "stops":
                time.sleep(2 * PATIENCE)

    do_HEAD = do_GET


CACHES = ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HOME")


@pytest.fixture(scope="module")
def fetch(tmp_path_factory, toy_model):
    """A function that runs `rapid fetch` of a model of the stand-in hub; its caches are `CACHES`."""
    hub = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    hub.files = {path.name: path.read_bytes() for path in toy_model.iterdir()}
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    folder = tmp_path_factory.mktemp("hub")
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_ETAG_TIMEOUT": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": "1",
        "HF_HUB_DISABLE_XET": "1",
        **{name: str(folder / name) for name in CACHES},
    }
    imports = ("rapid.stages.fetch", "rapid.stages.rehearsal:rehearse")
    with serving(folder, *imports, prefix=POWERLESS, env=settings) as socket:

        def fetch(name: str, out: Path, **env) -> subprocess.CompletedProcess:
            params = {"source": f"stand-in/{name}", "revision": "main"}
            spec = FetchSpec.model_validate({"model": "m", "params": params}).model_dump_json()
            env = {**os.environ, **settings, "RAPID_WARM": str(socket), **env}
            command = ["fetch", "--spec", spec, "--out", str(out)]
            return run_rapid(socket, *command, env=env, timeout=PATIENCE)

        fetch.folder = folder
        yield fetch
    hub.shutdown()
    hub.server_close()


def check_refused(name: str, out: Path, ended: subprocess.CompletedProcess) -> None:
    line = error_line(ended, "fetch")
    assert f"models.m.source: stand-in/{name} at main cannot be downloaded: " in line
    assert "Check the name and the network" in line
    assert not (out / "manifest.json").exists()


@pytest.mark.slow
@pytest.mark.fault("machine: hub answers wrongly, slowly or never", times=len(WRONG))
def test_a_hub_that_gives_no_model_is_named(fetch, tmp_path):
    """All at once, as most of the time is spent waiting."""
    with ThreadPoolExecutor(len(WRONG)) as pool:
        ended = pool.map(lambda name: fetch(name, tmp_path / name), WRONG)
    for name, process in zip(WRONG, ended, strict=True):
        check_refused(name, tmp_path / name, process)


@pytest.mark.slow
@pytest.mark.fault("machine: no network")
def test_a_missing_network_is_named(fetch, tmp_path):
    """The way to the hub is a proxy at which nobody listens."""
    proxy = {"http_proxy": "http://127.0.1.1:9", "no_proxy": "", "NO_PROXY": ""}
    check_refused("good", tmp_path / "m", fetch("good", tmp_path / "m", **proxy))


@pytest.mark.slow
@pytest.mark.fault("machine: cache not writable")
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("wall", WALLS)
def test_a_model_is_fetched_without_a_cache(fetch, toy_model, tmp_path, cache, wall):
    place = fetch.folder / cache
    shutil.rmtree(place, ignore_errors=True)
    with walled(place, wall):
        ended = fetch("good", tmp_path / "m")
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    if cache == "HF_HOME" and wall in ("0o000", "a file"):  # the user's token may be in it
        assert f"'{place}/token'" in error_line(ended, "fetch")
    else:
        assert ended.returncode == 0, ended.stderr
        assert sha256_file(tmp_path / "m" / WEIGHTS) == sha256_file(toy_model / WEIGHTS)
