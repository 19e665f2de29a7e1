"""A lack of disk space, permissions, memory or network is reported in one line; the job can be repeated."""

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
from tests.subprocesses import kill_at_end, wait_for

# Root may write everywhere, but not without its capabilities.
UNPRIVILEGED = [] if os.geteuid() else ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
TWENTIETHS = range(20)
PATIENCE = 300  # seconds until a test gives up
WEIGHTS = "model.safetensors"
# A fork server that has imported the modules of its commands. Each command has its own limits.
FORK_SERVER = """
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
def run_fork_server(folder: Path, *imports: str, prefix=(), env=None):
    """Run a fork server, and yield its socket."""
    socket, log = folder / "socket", folder / "log"
    command = [*prefix, sys.executable, "-c", FORK_SERVER, str(socket), str(os.getpid()), *imports]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    with kill_at_end(server):
        wait_for(lambda: socket.exists() or server.poll() is not None, PATIENCE)
        assert socket.exists(), log.read_text()
        yield socket


def get_error_line(ended: subprocess.CompletedProcess, command: str) -> str:
    """Return the line with the error of a failed command, and check that there is no traceback."""
    assert ended.returncode in (1, 2), ended.stderr
    assert "Traceback" not in ended.stderr
    [line] = [line for line in ended.stderr.splitlines() if line.startswith(f"rapid {command}: ")]
    return line


@contextmanager
def mount_memory(folder: Path, options: str):
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


OBSTACLES = ("0o555", "0o500", "0o000", "read-only", "a file")


@contextmanager
def block_writing(folder: Path, obstacle: str):
    """Put a folder or file here in which nothing can be written."""
    if obstacle == "read-only":
        with mount_memory(folder, "ro,mode=777"):
            yield
        return
    if obstacle == "a file":
        folder.write_text("")
    else:
        folder.mkdir()
        folder.chmod(int(obstacle, 8))
    yield


class TestTraining:
    """A job that trains and saves a model, without room or memory."""

    @pytest.fixture(scope="class")
    def socket(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("training")
        with run_fork_server(folder, "rapid.stages.warm_up:warm_up") as socket:
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
    @pytest.mark.parametrize("twentieth", TWENTIETHS)
    def test_a_full_disk_is_reported_and_the_job_can_be_repeated(
        self, socket, command, undisturbed, tmp_path, twentieth
    ):
        """The disk has room for about so many twentieths of the files of the job."""
        digest, size = undisturbed
        with mount_memory(tmp_path / "disk", f"size={max(4096, size * twentieth // 20 - 4096)}"):
            out = tmp_path / "disk/run"
            line = get_error_line(run_rapid(socket, *command, str(out)), "train")
            assert f"{out}: no space left on the disk: " in line and "Free some" in line
            assert not (out / "manifest.json").exists()
            if twentieth % 5 == 0:
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
    @pytest.mark.parametrize("twentieth", TWENTIETHS)
    def test_reaching_a_memory_limit_is_reported(
        self, socket, command, larger_model, tmp_path, monkeypatch, twentieth
    ):
        """The job may have up to 9.5 MB more memory than it has at the start."""
        out = tmp_path / "run"
        monkeypatch.setenv("FAULT_MEMORY", str(500_000 * twentieth))
        ended = run_rapid(socket, *command, str(out), "--model", str(larger_model))
        assert ended.returncode and not (out / "manifest.json").exists()
        assert "out of memory: " in ended.stderr or "ran out of memory" in ended.stderr, (
            ended.stderr
        )
        assert "Traceback" not in ended.stderr


@pytest.mark.fault("machine: disk full", times=8)
def test_every_error_of_torch_on_a_full_disk_is_recognized(tmp_path):
    """The error depends on the write that failed first."""
    with mount_memory(tmp_path / "disk", "size=4096"):
        for size in range(3000, 7000, 500):
            with pytest.raises(RuntimeError) as refusal:
                torch.save("x" * size, tmp_path / "disk/file")
            assert describe_shortage(refusal.value).startswith("no space left on the disk: ")


@pytest.fixture(scope="module")
def unprivileged_socket(tmp_path_factory):
    folder = tmp_path_factory.mktemp("permission")
    with run_fork_server(folder, "rapid.stages.prepare", prefix=UNPRIVILEGED) as socket:
        yield socket


@pytest.mark.slow
@pytest.mark.fault("machine: no permission to write")
@pytest.mark.parametrize("subfolder", ["", "data/math"])
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_folder_without_write_permission_is_reported(
    unprivileged_socket, tmp_path, obstacle, subfolder
):
    folder = tmp_path / "place"
    sizes = {"data_seed": 0, "train": 4, "test": 4, "demonstrations": 20}
    spec = json.dumps({"benchmark": "math", **sizes})
    with block_writing(folder, obstacle):
        ended = run_rapid(
            unprivileged_socket, "prepare", "--spec", spec, "--out", str(folder / subfolder)
        )
    line = get_error_line(ended, "prepare")
    assert str(folder) in line
    assert ("in the way: " if obstacle == "a file" else "permission denied: ") in line
    assert not list(tmp_path.rglob("manifest.json"))


# The name of a repository tells the stand-in hub how to answer a request.
FILES = {"config.json": b"{}", WEIGHTS: b"x" * 100}
STATUSES = ["400", "401", "403", "404", "410", "429", "500", "502", "503", "504"]
BODIES = {"html": b"<html>a portal</html>", "empty": b"", "list": b"[1]", "null": b"null"}
WRONG_ANSWERS = [*STATUSES, *BODIES, "silent", "hangs-up", "no-list", "short", "stops", "files-503"]


class Hub(BaseHTTPRequestHandler):
    """A hub that answers wrongly, slowly or not at all."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send_answer(self, status: int, body: bytes, missing_bytes: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) + missing_bytes))
        self.send_header("ETag", '"abc"')
        self.send_header("X-Repo-Commit", "a" * 40)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
            self.wfile.flush()

    def do_GET(self) -> None:
        behaviour = self.path.partition("stand-in/")[2].split("/")[0]
        name = self.path.rsplit("/", 1)[-1]
        files = self.server.files if behaviour == "good" else FILES
        if behaviour in STATUSES:
            self.send_answer(int(behaviour), b"{}")
        elif behaviour in BODIES:
            self.send_answer(200, BODIES[behaviour])
        elif behaviour == "silent":
            time.sleep(2 * PATIENCE)
        elif behaviour == "hangs-up":
            self.close_connection = True
        elif "/tree/" in self.path:
            listing = [
                {"type": "file", "path": path, "oid": "a" * 40, "size": len(content)}
                for path, content in files.items()
            ]
            self.send_answer(
                200, b"[1]" if behaviour == "no-list" else json.dumps(listing).encode()
            )
        elif "/api/" in self.path:
            self.send_answer(
                200, json.dumps({"id": f"stand-in/{behaviour}", "sha": "a" * 40}).encode()
            )
        elif behaviour == "files-503" and self.command == "GET":
            self.send_answer(503, b"")
        else:
            self.send_answer(200, files[name], missing_bytes=0 if behaviour == "good" else 10)
            self.close_connection |= behaviour == "short"
            if self.command == "GET" and behaviour == "stops":
                time.sleep(2 * PATIENCE)

    do_HEAD = do_GET


CACHES = ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HOME")


@pytest.fixture(scope="module")
def run_fetch(tmp_path_factory, toy_model):
    """Return a function that runs `rapid fetch` on a model of the stand-in hub, with caches `CACHES`."""
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
    imports = ("rapid.stages.fetch", "rapid.stages.warm_up:warm_up")
    with run_fork_server(folder, *imports, prefix=UNPRIVILEGED, env=settings) as socket:

        def run_fetch(name: str, out: Path, **env) -> subprocess.CompletedProcess:
            params = {"source": f"stand-in/{name}", "revision": "main"}
            spec = FetchSpec.model_validate({"model": "m", "params": params}).model_dump_json()
            env = {**os.environ, **settings, "RAPID_FORK_SERVER": str(socket), **env}
            command = ["fetch", "--spec", spec, "--out", str(out)]
            return run_rapid(socket, *command, env=env, timeout=PATIENCE)

        run_fetch.folder = folder
        yield run_fetch
    hub.shutdown()
    hub.server_close()


def assert_refused(name: str, out: Path, ended: subprocess.CompletedProcess) -> None:
    line = get_error_line(ended, "fetch")
    assert f"models.m.source: stand-in/{name} at main cannot be downloaded: " in line
    assert "Check the name and the network" in line
    assert not (out / "manifest.json").exists()


@pytest.mark.slow
@pytest.mark.fault("machine: hub answers wrongly, slowly or never", times=len(WRONG_ANSWERS))
def test_a_hub_that_sends_no_model_is_reported(run_fetch, tmp_path):
    """The requests are concurrent, because most of the time is spent waiting."""
    with ThreadPoolExecutor(len(WRONG_ANSWERS)) as pool:
        ended = pool.map(lambda name: run_fetch(name, tmp_path / name), WRONG_ANSWERS)
    for name, process in zip(WRONG_ANSWERS, ended, strict=True):
        assert_refused(name, tmp_path / name, process)


@pytest.mark.slow
@pytest.mark.fault("machine: no network")
def test_a_missing_network_is_reported(run_fetch, tmp_path):
    """The proxy is a port on which nothing listens."""
    proxy = {"http_proxy": "http://127.0.1.1:9", "no_proxy": "", "NO_PROXY": ""}
    assert_refused("good", tmp_path / "m", run_fetch("good", tmp_path / "m", **proxy))


@pytest.mark.slow
@pytest.mark.fault("machine: cache not writable")
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_model_is_fetched_without_a_writable_cache(
    run_fetch, toy_model, tmp_path, cache, obstacle
):
    cache_folder = run_fetch.folder / cache
    shutil.rmtree(cache_folder, ignore_errors=True)
    with block_writing(cache_folder, obstacle):
        ended = run_fetch("good", tmp_path / "m")
    shutil.rmtree(cache_folder) if cache_folder.is_dir() else cache_folder.unlink()
    if cache == "HF_HOME" and obstacle in ("0o000", "a file"):  # the folder of the user's token
        assert f"'{cache_folder}/token'" in get_error_line(ended, "fetch")
    else:
        assert ended.returncode == 0, ended.stderr
        assert sha256_file(tmp_path / "m" / WEIGHTS) == sha256_file(toy_model / WEIGHTS)
