"""The bubblewrap sandbox of a native Lean, with a stand-in for `lean` that runs Python."""

import json
import os
import shutil
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from rapid.grading import limits
from rapid.grading.lean import LeanUnavailable, install, native_sandbox
from rapid.grading.lean.install import Backend
from rapid.grading.lean.launch import Role, plan_launch
from rapid.grading.lean.process import LeanProcess
from tests.grading.lean.stand_in import PROGRAM, make_stand_in
from tests.subprocesses import find_processes_naming, wait_for

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed"
)


@pytest.fixture
def backend(tmp_path, monkeypatch) -> Backend:
    """The stand-in in a home folder of its own, to which `bin/lean` links, as it does with elan."""
    home = tmp_path / "home"
    toolchain = make_stand_in(home / "toolchain").folder
    (home / "secret").write_text("secret")
    (home / "bin").mkdir()
    (home / "bin" / "lean").symlink_to(toolchain / "lean")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RAPID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "token")
    # The stand-in finds Python where Lean would find Mathlib.
    monkeypatch.setenv("LEAN_PATH", f"{sys.base_prefix}")
    return Backend("native", install.LEAN_VERSION, home / "bin")


def start_stand_in(
    backend: Backend, code: str, role: Role = "author", unsafe: bool = False
) -> LeanProcess:
    """Start the stand-in, which runs this code."""
    return LeanProcess(backend, f"{PROGRAM}\n{code}", role, unsafe)


def read_line(process: LeanProcess) -> str:
    return process._reader.read_line(time.monotonic() + 30).decode()


def run_stand_in(
    backend: Backend, code: str, role: Role = "author", unsafe: bool = False
) -> list[str]:
    """Run code in the stand-in to its end, and return the lines that it prints."""
    process, lines = start_stand_in(backend, code, role, unsafe), []
    try:
        with suppress(EOFError):
            while True:
                lines.append(read_line(process))
    finally:
        process.end()
    return lines


def report_refusal(code: str) -> str:
    """Return code that prints `refused` if there is an OSError, and else `done`."""
    body = "\n".join(f"    {line}" for line in code.splitlines())
    return f"try:\n{body}\n    print('done')\nexcept OSError as error:\n    print('refused')"


ESCAPES = [
    "open(os.path.join(HOME, 'secret')).read()",
    "os.listdir(HOME + '/bin')",
    "open('/etc/passwd').read()",
    "os.write(os.open('/tmp/made', os.O_CREAT | os.O_WRONLY), b'x')",
    "open(sys.argv[2], 'a')",
    "import socket; socket.create_connection(('127.0.0.1', PORT))",
    "os.fork()",
    "os.posix_spawn(sys.executable, ['python'], {})",
    "os.kill(OUTSIDE, 0)",
]


@needs_bubblewrap
class TestSandbox:
    @pytest.mark.parametrize("role", ["author", "judge"])
    def test_both_roles_run_in_the_sandbox(self, backend, role):
        assert run_stand_in(backend, "print(role)", role) == [role]
        assert "bubblewrap" in plan_launch(backend, "", role).isolation

    @pytest.mark.parametrize("code", ESCAPES)
    def test_an_escape_is_refused(self, backend, monkeypatch, code):
        values = {"HOME": os.environ["HOME"], "OUTSIDE": os.getpid()}
        with socket.create_server(("127.0.0.1", 0)) as server:
            values["PORT"] = server.getsockname()[1]
            assignments = "".join(f"{name} = {value!r}\n" for name, value in values.items())
            # Python gets an error instead of the signal that limits the size of files.
            assignments += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            attack = assignments + report_refusal(code)
            # Without the sandbox the attack works.
            if "kill" in code or "passwd" in code:
                with monkeypatch.context() as patch:
                    patch.setattr(native_sandbox.shutil, "which", lambda _: None)
                    assert run_stand_in(backend, attack, unsafe=True) == ["done"]
            assert run_stand_in(backend, attack) == ["refused"]

    def test_unsafe_lean_leaves_a_working_sandbox_in_use(self, backend, monkeypatch):
        attack = report_refusal("open('/etc/passwd').read()")
        assert run_stand_in(backend, attack, unsafe=True) == ["refused"]
        assert plan_launch(backend, "", "author", unsafe=True).isolation.startswith("bubblewrap")

        monkeypatch.setattr(native_sandbox.shutil, "which", lambda _: "/bin/false")
        with pytest.raises(LeanUnavailable, match=r"does not work.*userns_clone\)$"):
            plan_launch(backend, "", "author", unsafe=True)

    def test_threads_work_in_the_sandbox(self, backend):
        code = "import threading; t = threading.Thread(target=print, args=('x',)); t.start()"
        assert run_stand_in(backend, code) == ["x"]

    def test_the_sandbox_has_only_the_environment_variables_of_lean(self, backend):
        allowed = {"PATH", "LEAN_SYSROOT", "LEAN_PATH", "LEAN_NUM_THREADS", "PWD", "LC_CTYPE"}
        (names,) = map(json.loads, run_stand_in(backend, "print(json.dumps([*os.environ]))"))
        assert set(names) - {"OLDPWD", "SHLVL", "_"} <= allowed
        assert "HF_TOKEN" not in names

    def test_memory_in_the_sandbox_is_limited(self, backend, monkeypatch):
        monkeypatch.setattr(limits, "LEAN_NATIVE_MB", 1000)
        code = "print('start', flush=True); x = bytearray(2 * 10**9); print('end')"
        assert run_stand_in(backend, code) == ["start"]

    @pytest.mark.parametrize("ending", ["owner", "process", "group"])
    def test_the_processes_in_the_sandbox_end_with_their_owner(self, backend, ending, tmp_path):
        process = start_stand_in(
            backend, "print('ready', flush=True)\nimport time\ntime.sleep(3600)"
        )
        assert read_line(process) == "ready"
        assert find_processes_naming(tmp_path)
        if ending == "process":
            process.kill()
        elif ending == "group":
            os.killpg(process.pid, signal.SIGKILL)
        os.close(process._lifeline)
        process.wait(timeout=30)
        wait_for(lambda: not find_processes_naming(tmp_path))
        process._lifeline = os.open(os.devnull, os.O_RDONLY)
        process.end()

    def test_the_sandbox_outlives_the_thread_that_started_it(self, backend):
        def start_and_wait():
            code = "print('ready', flush=True); print(sys.stdin.readline().strip())"
            process = start_stand_in(backend, code)
            assert read_line(process) == "ready"  # before the thread ends
            return process

        with ThreadPoolExecutor(1) as executor:
            process = executor.submit(start_and_wait).result()
        time.sleep(0.5)  # for a signal that should not come
        process.connection.sendall(b"hello\n")
        assert read_line(process) == "hello"
        process.end()


class TestWithoutBubblewrap:
    @pytest.mark.parametrize(
        ("program", "message"),
        [
            (None, r"bwrap.*Install bubblewrap.*--unsafe-lean"),
            ("/bin/false", r"does not work here: .*\. Allow user namespaces \(.*AppArmor profile"),
        ],
    )
    def test_lean_is_unavailable_without_a_working_bubblewrap(
        self, backend, monkeypatch, program, message
    ):
        monkeypatch.setattr(native_sandbox.shutil, "which", lambda _: program)
        with pytest.raises(LeanUnavailable, match=message):
            plan_launch(backend, "", "judge", unsafe=False)

    def test_unsafe_lean_runs_without_a_sandbox_and_reports_it(self, backend, monkeypatch):
        monkeypatch.setattr(native_sandbox.shutil, "which", lambda _: None)
        assert plan_launch(backend, "", "judge", unsafe=True).isolation.startswith("none")
        assert run_stand_in(backend, "print(role)", "judge", unsafe=True) == ["judge"]


def test_the_toolchain_is_found_through_the_link_of_elan(backend, tmp_path):
    assert install.find_toolchain(backend) == (tmp_path / "home" / "toolchain").resolve()


def test_relative_folders_of_the_library_are_made_absolute(backend, monkeypatch, tmp_path):
    (tmp_path / "proofs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEAN_PATH", "proofs")
    plan = plan_launch(backend, "", "author", unsafe=True)
    assert plan.environment["LEAN_PATH"] == str((tmp_path / "proofs").resolve())
