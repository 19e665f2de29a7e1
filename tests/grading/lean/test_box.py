"""The box of a native Lean, tried by a stand-in in the place of `lean` that runs Python."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rapid.grading.lean import LeanUnavailable, box, install
from rapid.grading.lean.install import Backend
from rapid.grading.lean.launch import Launch, launch, native
from tests.grading.lean.stand_in import PROGRAM, stand_in
from tests.subprocesses import naming, wait_for

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed"
)


@pytest.fixture
def backend(tmp_path, monkeypatch) -> Backend:
    """The stand-in, found through a link as elan's is, in a home of its own."""
    home = tmp_path / "home"
    toolchain = stand_in(home / "toolchain").folder
    (home / "secret").write_text("secret")
    (home / "bin").mkdir()
    (home / "bin" / "lean").symlink_to(toolchain / "lean")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RAPID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "token")
    # Where Lean would find Mathlib, the stand-in finds Python.
    monkeypatch.setenv("LEAN_PATH", f"{sys.base_prefix}")
    return Backend("native", "4.99.0", home / "bin")


def started(how: Launch, code: str) -> tuple[subprocess.Popen, int]:
    """The process and the lifeline by which it notices its owner's end, as in process.py."""
    guarded, lifeline = os.pipe()
    process = subprocess.Popen(
        how.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=guarded,
        env=how.environment,
        cwd=how.folder,
        start_new_session=True,
    )
    os.close(guarded)
    process.stdin.write(json.dumps({"header": f"{PROGRAM}\n{code}"}).encode() + b"\n")
    process.stdin.flush()
    return process, lifeline


def said(how: Launch, code: str) -> str:
    """What `code` prints in the place of Lean."""
    process, lifeline = started(how, code)
    try:
        output, _ = process.communicate(timeout=30)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        os.close(lifeline)
    return output.decode()


def attempt(code: str) -> str:
    """Code that says what an error is called, or that there was none."""
    body = "\n".join(f"    {line}" for line in code.splitlines())
    return f"try:\n{body}\n    print('done')\nexcept OSError as error:\n    print('refused')"


@needs_bubblewrap
class TestBox:
    @pytest.mark.parametrize("role", ["author", "judge"])
    def test_both_roles_run_in_it(self, backend, role):
        how = launch(backend, "", role, unsafe=False)
        assert said(how, "print(role)") == f"{role}\n"
        assert "bubblewrap" in how.walls

    @pytest.mark.parametrize(
        "code",
        [
            "open(os.path.join(HOME, 'secret')).read()",
            "os.listdir(HOME + '/bin')",
            "open('/etc/passwd').read()",
            "os.write(os.open('/tmp/made', os.O_CREAT | os.O_WRONLY), b'x')",
            "open(sys.argv[2], 'a')",
            "import socket; socket.create_connection(('127.0.0.1', PORT))",
            "os.fork()",
            "os.posix_spawn(sys.executable, ['python'], {})",
            "os.kill(OUTSIDE, 0)",
        ],
    )
    def test_it_refuses(self, backend, code):
        known = {"HOME": os.environ["HOME"], "OUTSIDE": os.getpid()}
        with socket.create_server(("127.0.0.1", 0)) as server:
            known["PORT"] = server.getsockname()[1]
            names = "".join(f"{name} = {value!r}\n" for name, value in known.items())
            # A file's size is limited by a signal, unless that is ignored.
            names += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            attack = names + attempt(code)
            assert said(launch(backend, "", "author", unsafe=False), attack) == "refused\n"
            # The attack is one that works without the box.
            if "kill" in code or "passwd" in code:
                assert said(launch(backend, "", "author", unsafe=True), attack) == "done\n"

    def test_it_has_threads(self, backend):
        code = "import threading; t = threading.Thread(target=print, args=('x',)); t.start()"
        assert said(launch(backend, "", "author"), code) == "x\n"

    def test_it_has_no_environment_but_leans(self, backend):
        allowed = {"PATH", "LEAN_SYSROOT", "LEAN_PATH", "LEAN_NUM_THREADS", "PWD", "LC_CTYPE"}
        names = json.loads(said(launch(backend, "", "author"), "print(json.dumps([*os.environ]))"))
        assert set(names) - {"OLDPWD", "SHLVL", "_"} <= allowed
        assert "HF_TOKEN" not in names

    def test_its_memory_is_limited(self, backend):
        how = native(backend, "author", unsafe=False, memory_mb=1000)
        code = "print('start', flush=True); x = bytearray(2 * 10**9); print('end')"
        assert said(how, code) == "start\n"

    @pytest.mark.parametrize("end", ["owner", "process", "group"])
    def test_nothing_outlives_its_owner(self, backend, end, tmp_path):
        code = "print('ready', flush=True)\nimport time\ntime.sleep(3600)"
        process, lifeline = started(launch(backend, "", "author"), code)
        assert process.stdout.readline() == b"ready\n"
        assert naming(tmp_path)
        if end == "process":
            process.kill()
        elif end == "group":
            os.killpg(process.pid, signal.SIGKILL)
        os.close(lifeline)
        process.wait(timeout=30)
        wait_for(lambda: not naming(tmp_path))

    def test_it_outlives_the_thread_that_started_it(self, backend):
        code = "print('ready', flush=True); print(sys.stdin.readline().strip())"

        def start():
            process, lifeline = started(launch(backend, "", "author"), code)
            assert process.stdout.readline() == b"ready\n"  # before the thread ends
            return process, lifeline

        with ThreadPoolExecutor(1) as thread:
            process, lifeline = thread.submit(start).result()
        time.sleep(0.5)  # for a signal that should not come
        output, _ = process.communicate(b"hello\n", timeout=30)
        os.close(lifeline)
        assert output == b"hello\n"


class TestWithout:
    @pytest.mark.parametrize(
        ("found", "said"),
        [(None, r"bwrap.*Install bubblewrap.*--unsafe-lean"), ("/bin/false", "makes none here")],
    )
    def test_without_a_bubblewrap_that_works_it_refuses(self, backend, monkeypatch, found, said):
        monkeypatch.setattr(box.shutil, "which", lambda _: found)
        with pytest.raises(LeanUnavailable, match=said):
            launch(backend, "", "judge", unsafe=False)

    def test_unsafe_runs_without_and_says_so(self, backend, monkeypatch):
        monkeypatch.setattr(box.shutil, "which", lambda _: None)
        how = launch(backend, "", "judge", unsafe=True)
        assert how.walls.startswith("none")
        assert said(how, "print(role)") == "judge\n"


def test_the_toolchain_is_found_behind_elans_stand_in(backend, tmp_path):
    assert install.toolchain(backend) == (tmp_path / "home" / "toolchain").resolve()


def test_relative_folders_of_the_library_are_made_absolute(backend, monkeypatch, tmp_path):
    (tmp_path / "proofs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEAN_PATH", "proofs")
    how = launch(backend, "", "author", unsafe=True)
    assert how.environment["LEAN_PATH"] == str((tmp_path / "proofs").resolve())
