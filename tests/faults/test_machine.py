"""What a machine may lack: room, permission, memory, a hub. A line says it; the job can be repeated."""

import json
import os
import random
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
from transformers import AutoTokenizer

from rapid.artifacts.files import sha256_file, write_jsonl
from rapid.artifacts.manifests import digests, write_manifest
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import make
from rapid.config.specs import FetchSpec
from tests.conftest import ROOT, save_qwen2
from tests.processes.test_fork_server import rapid
from tests.stages.test_ungraded import training
from tests.subprocesses import ending, wait_for

# Root may write everywhere; without its capabilities the modes of files hold for it too.
POWERLESS = [] if os.geteuid() else ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
TWENTY = range(20)
PATIENCE = 300  # seconds until a test gives up
# Forks commands from a process that has imported what they need, each within limits of its own.
SERVER = """
import importlib, os, resource, sys
from pathlib import Path
from rapid import cli
from rapid.processes.fork_server import serve
PAGE = resource.getpagesize()
def prepare():
    for name in sys.argv[3:]:
        module, _, function = name.partition(":")
        found = importlib.import_module(module)
        if function:
            getattr(found, function)()
def run(arguments):
    if more := os.environ.get("FAULT_MEMORY"):
        held = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
        resource.setrlimit(resource.RLIMIT_AS, (held + int(more), held + int(more)))
    return cli.run(arguments)
serve(Path(sys.argv[1]), int(sys.argv[2]), prepare, run, lambda arguments: None)
"""


@contextmanager
def serving(folder: Path, *imports: str, prefix: list[str] = [], env: dict = {}):  # noqa: B006
    """Run a server of commands, and yield its socket."""
    socket, log = folder / "socket", folder / "log"
    command = [*prefix, sys.executable, "-c", SERVER, str(socket), str(os.getpid()), *imports]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    with ending(server):
        wait_for(lambda: socket.exists() or server.poll() is not None, PATIENCE)
        assert socket.exists(), log.read_text()
        yield socket


def said(done: subprocess.CompletedProcess, command: str) -> str:
    """Return the line in which a command says why it failed; no traceback is before it."""
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    [line] = [x for x in done.stderr.splitlines() if x.startswith(f"rapid {command}: ")]
    return line


class TestTraining:
    """A job that trains and saves a model, where there is no room or no memory."""

    @pytest.fixture(scope="class")
    def socket(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("training")
        with serving(folder, "rapid.stages.rehearsal:rehearse") as socket:
            yield socket

    @pytest.fixture(scope="class")
    def command(self, toy_model, tmp_path_factory) -> list[str]:
        data = tmp_path_factory.mktemp("data") / "train.jsonl"
        exercises = make(BENCHMARKS["mbpp_plus"], 0, {"train": 4})["train"]
        write_jsonl(data, [exercise.problem for exercise in exercises])
        spec = training()
        run = spec.run.model_copy(update={"benchmark": "mbpp_plus"})
        spec = spec.model_copy(update={"run": run})
        command = ["train", "--spec", spec.model_dump_json(), "--data", str(data)]
        return [*command, "--model", str(toy_model), "--out"]

    @pytest.fixture(scope="class")
    def undisturbed(self, socket, command, tmp_path_factory) -> tuple[str, int]:
        """The digest of its weights, and how many bytes it writes."""
        out = tmp_path_factory.mktemp("undisturbed") / "run"
        done = rapid(socket, *command, str(out))
        assert done.returncode == 0, done.stderr
        files = [path for path in out.rglob("*") if path.is_file()]
        size = sum(4096 * -(-path.stat().st_size // 4096) for path in files)
        return sha256_file(out / "model/model.safetensors"), size

    @pytest.mark.slow
    @pytest.mark.fault("disk full")
    @pytest.mark.parametrize("n", TWENTY)
    def test_a_full_disk_is_named_and_what_was_lost_is_made_again(
        self, socket, command, undisturbed, tmp_path, n
    ):
        """The disk is about as large as the first n of 20 parts of what the job writes."""
        room = max(4096, undisturbed[1] * n // 20 - 4096)
        with mounted(tmp_path / "disk", f"size={room}"):
            out = tmp_path / "disk/run"
            line = said(rapid(socket, *command, str(out)), "train")
            assert f"{out}: no room on the disk: " in line and "Free some" in line
            assert not (out / "manifest.json").exists()  # comes last: who has none is made again
            if n % 5 == 0:
                enough = ["mount", "-o", "remount,size=0", str(tmp_path / "disk")]
                subprocess.run(enough, check=True)
                done = rapid(socket, *command, str(out))
                assert done.returncode == 0, done.stderr
                assert (out / "manifest.json").exists()
                assert sha256_file(out / "model/model.safetensors") == undisturbed[0]

    @pytest.fixture(scope="class")
    def larger(self, toy_model, tmp_path_factory) -> Path:
        """A model of 2 million parameters, to train which takes some 20 MB."""
        shape = {"hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
        tokenizer = AutoTokenizer.from_pretrained(toy_model)
        sizes = {**shape, **heads, "vocab_size": len(tokenizer)}
        return save_qwen2(tmp_path_factory.mktemp("larger"), tokenizer, **sizes)

    @pytest.mark.slow
    @pytest.mark.fault("memory limit reached")
    @pytest.mark.parametrize("n", TWENTY)
    def test_a_limit_on_memory_is_named(self, socket, command, larger, tmp_path, monkeypatch, n):
        """From no memory more than is held already to 9.5 MB more."""
        out = tmp_path / "run"
        monkeypatch.setenv("FAULT_MEMORY", str(500_000 * n))
        done = rapid(socket, *command, str(out), "--model", str(larger))
        assert done.returncode and not (out / "manifest.json").exists()
        assert "no memory: " in done.stderr or "memory ran out" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


@contextmanager
def mounted(folder: Path, options: str):
    """Mount an empty file system in memory there, for a while."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"file systems cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


WALLS = ("0o555", "0o500", "0o000", "read-only", "a file")


@contextmanager
def walled(place: Path, wall: str):
    """Make a folder in which nothing can be written, for a while."""
    if wall == "a file":
        place.write_text("")
        yield
    elif wall == "read-only":
        with mounted(place, "ro,mode=777"):
            yield
    else:
        place.mkdir()
        place.chmod(int(wall, 8))
        yield


class TestPermission:
    """A user who may not write where a job writes."""

    @pytest.fixture(scope="class")
    def socket(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("permission")
        with serving(folder, "rapid.stages.prepare", prefix=POWERLESS) as socket:
            yield socket

    @pytest.mark.slow
    @pytest.mark.fault("no permission to write")
    @pytest.mark.parametrize("deep", [False, True])
    @pytest.mark.parametrize("benchmark", ["math", "mbpp_plus"])
    @pytest.mark.parametrize("wall", WALLS)
    def test_a_folder_that_may_not_be_written_is_named(
        self, socket, tmp_path, wall, benchmark, deep
    ):
        place = tmp_path / "place"
        out = place / "data" / benchmark if deep else place
        sizes = {"data_seed": 0, "train": 4, "test": 4, "demonstrations": 20}
        spec = json.dumps({"benchmark": benchmark, **sizes})
        command = ["prepare", "--spec", spec, "--out", str(out)]
        with walled(place, wall):
            line = said(rapid(socket, *command), "prepare")
        assert str(place) in line
        assert ("in the way: " if wall == "a file" else "not allowed: ") in line
        assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.fault("clock that goes back while a job runs")
@pytest.mark.parametrize("seed", TWENTY)
def test_what_was_read_is_not_younger_than_what_was_made(tmp_path, seed):
    """Snakemake deletes what a job made where its inputs are younger; now is the job's end."""
    draw = random.Random(seed)
    read = [tmp_path / name for name in ("data/train.jsonl", "models/m", "runs/r/model")]
    inputs = [*read, tmp_path / "data/manifest.json", tmp_path / "models/m/manifest.json"]
    inputs += [tmp_path / "runs/r/manifest.json", tmp_path / "models/m/weights"]
    for path in inputs[3:]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    inputs[2].mkdir()
    (inputs[2] / "weights").write_text("2")
    inputs[0].write_text("{}")
    for path in inputs:
        then = time.time() + draw.choice([-1, 1, 1]) * 10 ** draw.uniform(-3, 9)
        os.utime(path, (then, then))
    out = tmp_path / "out"
    write_manifest(out, "train", training(), digests(*read), [])
    depended_on = inputs[:1] + inputs[3:6]
    assert all(path.stat().st_mtime <= time.time() for path in depended_on)


# What the stand-in hub does with a request, by the name of the repository that is asked for.
FILES = {"config.json": b"{}", "model.safetensors": b"x" * 100}
STATUSES = ["400", "401", "403", "404", "410", "429", "500", "502", "503", "504"]
BODIES = {"html": b"<html>a portal</html>", "empty": b"", "list": b"[1]", "null": b"null"}
WRONG = [*STATUSES, *BODIES, "silent", "hangs-up", "no-list", "short", "stops", "files-503"]


def listed(files: dict[str, bytes]) -> bytes:
    """Return what a hub says of a repository's files."""
    return json.dumps(
        [{"type": "file", "path": n, "oid": "a" * 40, "size": len(b)} for n, b in files.items()]
    ).encode()


class Hub(BaseHTTPRequestHandler):
    """A hub that answers wrongly, slowly or not at all."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status: int, body: bytes, missing: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) + missing))
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
            self.say(int(how), b"{}")
        elif how in BODIES:
            self.say(200, BODIES[how])
        elif how == "silent":
            time.sleep(2 * PATIENCE)
        elif how == "hangs-up":
            self.close_connection = True
        elif "/tree/" in self.path:
            self.say(200, b"[1]" if how == "no-list" else listed(files))
        elif "/api/" in self.path:
            self.say(200, json.dumps({"id": f"stand-in/{how}", "sha": "a" * 40}).encode())
        elif how == "files-503" and self.command == "GET":
            self.say(503, b"")
        else:
            self.say(200, files[name], missing=0 if how == "good" else 10)
            self.close_connection |= how == "short"
            if self.command == "GET" and how == "stops":
                time.sleep(2 * PATIENCE)

    do_HEAD = do_GET


CACHES = ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HOME")


@pytest.fixture(scope="module")
def hub(tmp_path_factory, toy_model):
    """A function that runs `rapid fetch` of a model of the stand-in hub; its caches are `CACHES`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files = {path.name: path.read_bytes() for path in toy_model.iterdir()}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = tmp_path_factory.mktemp("hub")
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
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
            return rapid(socket, *command, env=env, timeout=PATIENCE)

        fetch.folder = folder
        yield fetch
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def wrongly(hub, tmp_path_factory) -> dict[str, tuple[Path, subprocess.CompletedProcess]]:
    """What is said of each model that the hub does not give: most of the time is spent waiting."""
    folder = tmp_path_factory.mktemp("wrongly")
    with ThreadPoolExecutor(len(WRONG)) as pool:
        asked = {name: pool.submit(hub, name, folder / name) for name in WRONG}
    return {name: (folder / name, future.result()) for name, future in asked.items()}


@pytest.mark.slow
@pytest.mark.fault("hub that answers wrongly, slowly or not at all")
@pytest.mark.parametrize("name", WRONG)
def test_a_hub_that_gives_no_model_is_named(wrongly, name):
    check_refused(name, *wrongly[name])


@pytest.mark.slow
@pytest.mark.fault("no network")
@pytest.mark.parametrize("n", TWENTY)
def test_no_network_is_named(hub, tmp_path, n):
    """The way to the hub is a proxy at which nobody listens."""
    proxy = {"http_proxy": f"http://127.0.1.{n + 1}:9", "no_proxy": "", "NO_PROXY": ""}
    check_refused("good", tmp_path / "m", hub("good", tmp_path / "m", **proxy))


def check_refused(name: str, out: Path, done: subprocess.CompletedProcess) -> None:
    line = said(done, "fetch")
    assert f"models.m.source: stand-in/{name} at main cannot be downloaded: " in line
    assert "Check the name and the network" in line
    assert not (out / "manifest.json").exists()


@pytest.mark.slow
@pytest.mark.fault("cache that cannot be written")
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("wall", WALLS)
def test_a_model_is_fetched_without_a_cache(hub, toy_model, tmp_path, cache, wall):
    place = hub.folder / cache
    shutil.rmtree(place, ignore_errors=True)
    with walled(place, wall):
        done = hub("good", tmp_path / "m")
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    if cache == "HF_HOME" and wall in ("0o000", "a file"):  # the user's token may be in it
        assert f"'{place}/token'" in said(done, "fetch")
    else:
        assert done.returncode == 0, done.stderr
        weights = "model.safetensors"
        assert sha256_file(tmp_path / "m" / weights) == sha256_file(toy_model / weights)
