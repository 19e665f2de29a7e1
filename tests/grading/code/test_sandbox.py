"""The sandbox's isolation, attacked without the guard and the filters in front of it.

No attack does harm if it succeeds, because these tests have to be safe to run as any user.
"""

import errno
import json
import os
import re
import shutil
import signal
import socket
from pathlib import Path

import psutil
import pytest

from rapid.grading import limits
from rapid.grading.code import sandbox as sandbox_module
from rapid.grading.code.runner import encoding
from rapid.grading.code.sandbox import Sandbox, SandboxError, encode_job
from rapid.grading.grader import GraderDied
from tests.grading.code.conftest import Isolation, open_sandbox
from tests.subprocesses import python


def run_program(sandbox: Sandbox, program: str, timeout: float = 5.0):
    """Return the result of `f()` of a program in the sandbox, or the reason why there is none."""
    answers = []
    job = encode_job(program, "f", "[[]]")
    ending = sandbox.run(job, timeout, lambda line: answers.append(json.loads(line)), 10**6)
    if not answers:
        return ending
    return encoding.decode(answers[0]["output"]) if "output" in answers[0] else answers[0]["reason"]


def report_error(action: str) -> str:
    """Return a program whose `f()` returns the name of the error that an action raises."""
    return (
        "import _thread, os, resource\n"
        "def f():\n"
        "    try:\n"
        f"        {action}\n"
        "    except Exception as error:\n"
        "        return type(error).__name__\n"
    )


def test_nothing_can_be_written(unfiltered_sandbox, excludes_unsafe_layer):
    program = """
import os
def f():
    made = []
    for folder, _, _ in os.walk("/"):
        try:
            os.mkdir(folder + "/left-by-a-test")
            made.append(folder)
        except OSError:
            pass
    return made
"""
    assert run_program(unfiltered_sandbox, program, timeout=20.0) == []


def test_a_server_on_the_host_cannot_be_reached(unfiltered_sandbox, excludes_unsafe_layer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        action = f"__import__('socket').create_connection({server.getsockname()}, 1)"
        assert run_program(unfiltered_sandbox, report_error(action)) in (
            "OSError",
            "ConnectionRefusedError",
        )


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("os._exit(0) if os.fork() == 0 else None", "BlockingIOError"),
        ("_thread.start_new_thread(print, ())", "RuntimeError"),
        ("os.write(os.memfd_create('a'), b'a')", "OSError"),
        ("resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))", "ValueError"),
    ],
)
def test_limits_hold_without_filters(unfiltered_sandbox, action, error):
    assert run_program(unfiltered_sandbox, report_error(action)) == error


def test_a_completion_is_not_root_and_has_no_capabilities(unfiltered_sandbox):
    program = """
import ctypes, os
def f():
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capget(ctypes.byref(header), ctypes.byref(data))
    return os.getuid() == 0 or os.geteuid() == 0, sum(data)
"""
    assert run_program(unfiltered_sandbox, program) == (False, 0)


REFUSED_CALLS_OF_PYTHON = """
    os.fork() | _thread.start_new_thread(print, ()) | os.execv('/bin/true', ['true'])
    os.posix_spawn('/bin/true', ['true'], {}) | os.kill(os.getpid(), 0) | os.kill(-1, 0)
    os.kill(os.getppid() or 1, 0) | socket.socket() | socket.socket(type=socket.SOCK_DGRAM)
    socket.socket(socket.AF_UNIX) | socket.socketpair() | os.setpriority(os.PRIO_PROCESS, 0, 1)
    os.sched_setaffinity(0, os.sched_getaffinity(0)) | os.setsid() | os.pipe() | os.memfd_create('a')
    os.open('/dev/null', os.O_WRONLY) | os.open('/dev/null', os.O_TRUNC)
    os.open('/tmp/left-by-a-test', os.O_CREAT|os.O_RDONLY) | os.mkdir('/tmp/left-by-a-test')
    os.symlink('/', '/tmp/left-by-a-test') | os.unlink('/tmp/left-by-a-test')
    os.rename('/tmp/left-by-a-test', '/tmp/a') | os.chmod('/', 0o777) | os.chroot('/')
"""


def test_the_kernel_refuses_forbidden_calls_of_python(sandbox):
    actions = [
        action
        for line in REFUSED_CALLS_OF_PYTHON.splitlines()
        for action in line.strip().split(" | ")
        if action
    ]
    program = "import _thread, os, socket\ndef f():\n    found = {}\n"
    for action in actions:
        program += f"    try: found[{action!r}] = {action}\n"
        program += f"    except Exception as error: found[{action!r}] = type(error).__name__\n"
    errors = run_program(sandbox, program + "    return found\n")
    # A thread that cannot start is a RuntimeError.
    refusals = ("PermissionError", "RuntimeError")
    assert errors.keys() == set(actions)
    assert not {action: error for action, error in errors.items() if error not in refusals}


REFUSED_CALLS_OF_C = [
    "shmget(0, 4096, 0o1600)", "msgget(0, 0o1600)", "semget(0, 1, 0o1600)", "unshare(0x10000000)",
    "mount(b'a', b'/tmp', b'tmpfs', 0, None)", "ptrace(0, 0, 0, 0)", "prctl(4, 1, 0, 0, 0)",
    "process_vm_readv(1, None, 0, None, 0, 0)", "inotify_init()", "timerfd_create(0, 0)", "flock(0, 2)",
]  # fmt: skip


def test_the_kernel_refuses_forbidden_calls_of_c(sandbox):
    program = "import _ctypes, ctypes\ndef f():\n    libc = ctypes.CDLL(None, use_errno=True)\n"
    program += "    found = {}\n"
    for action in REFUSED_CALLS_OF_C:
        program += f"    ctypes.set_errno(0)\n    result = libc.{action}\n"
        program += f"    found[{action!r}] = result, ctypes.get_errno()\n"
    results = run_program(sandbox, program + "    return found\n")
    assert results == dict.fromkeys(REFUSED_CALLS_OF_C, (-1, errno.EPERM))


def test_numbers_of_system_calls_match_the_kernel_headers(monkeypatch):
    """The headers have to be installed."""
    monkeypatch.syspath_prepend(sandbox_module._RUNNER)
    import filters

    allowed = [*filters.ALLOWED, ["openat", *filters.OPENAT]]
    for column, header in enumerate(
        ["x86_64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h"], start=1
    ):
        path = Path("/usr/include", header)
        if not path.exists():
            pytest.skip("no kernel headers")
        definitions = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text())
        numbers = dict(definitions)
        numbers.setdefault("newfstatat", numbers.get("fstatat"))
        for name, *numbers_by_machine in allowed:
            if str(numbers_by_machine[column - 1]) != "-":
                assert numbers[name] == str(numbers_by_machine[column - 1]), name


def test_objects_of_a_job_are_not_visible_to_the_next_job(sandbox):
    program = """
import gc, sys
def f():
    return [1 for found in gc.get_objects() if type(found) is dict and "a secret" in found]
"""
    run_program(sandbox, "kept = {'a' + ' secret': 1}\ndef f(): return 1")
    assert len(run_program(sandbox, program)) == 0


def test_the_runner_is_killed_first_when_memory_runs_out(sandbox):
    score = Path(f"/proc/{sandbox._runner.pid}/oom_score_adj")
    assert int(score.read_text()) == 1000


@pytest.mark.parametrize("open_file_count", [0, 300])
def test_only_the_answer_socket_is_inherited(layer, open_file_count):
    """This holds also if the grader has many open files, as beside vLLM, so that descriptors are high."""
    program = """
import os, stat
def f():
    sockets = 0
    for fd in range(2048):
        try:
            sockets += stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            pass
    return sockets
"""
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(open_file_count)]
    try:
        with open_sandbox(Isolation(layer, guarded=False)) as sandbox:
            assert run_program(sandbox, program) == 1
    finally:
        for file in files:
            os.close(file)


def test_only_the_runner_has_the_socket_of_the_grader(layer):
    """A completion may reach the processes around the runner, such as bubblewrap's."""
    with open_sandbox(Isolation(layer)) as sandbox:
        outer_process = psutil.Process(sandbox._runner.pid)
        files = {
            process.pid: [os.readlink(path) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
            for process in (outer_process, *outer_process.children(recursive=True))
        }
    holders = [pid for pid, names in files.items() if any("socket:" in name for name in names)]
    assert len(holders) == 1


def test_the_environment_is_empty(sandbox, monkeypatch):
    monkeypatch.setenv("A_SECRET", "1")
    assert "A_SECRET" not in run_program(sandbox, "import os\ndef f(): return list(os.environ)")


def test_the_sandbox_runs_on_the_cores_of_its_job(layer):
    affinity = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(affinity)})
        with Sandbox(layer=layer, guarded=False) as pinned:
            program = "import os\ndef f(): return os.sched_getaffinity(0)"
            assert run_program(pinned, program) == {max(affinity)}
    finally:
        os.sched_setaffinity(0, affinity)


def test_a_runner_that_does_not_respond_is_replaced(monkeypatch):
    monkeypatch.setattr(limits, "CODE_GRACE_SECONDS", 0.1)
    monkeypatch.setattr(limits, "CODE_REPLY_SECONDS", 0.1)
    with Sandbox(layer="limits", unsafe=True) as sandbox:
        os.kill(sandbox._runner.pid, signal.SIGSTOP)
        with pytest.raises(GraderDied, match="does not respond"):
            run_program(sandbox, "def f(): return 1", timeout=0.1)
        monkeypatch.undo()
        assert run_program(sandbox, "def f(): return 1") == 1


def test_the_runner_ends_with_the_sandbox(layer):
    with Sandbox(layer=layer) as sandbox:
        runner = sandbox._runner
    assert runner.poll() is not None


def test_a_receiver_can_end_the_job_early(sandbox):
    """It ends the job by returning False or by raising an error, and the next job works."""
    job = encode_job("def f(x):\n    while x: pass\n    return x", "f", "[[0], [1]]")
    assert sandbox.run(job, 30.0, lambda line: False, 100) == sandbox_module.STOPPED
    with pytest.raises(ZeroDivisionError):
        sandbox.run(job, 30.0, lambda line: 1 / 0, 100)
    assert run_program(sandbox, "def f(): return 1") == 1


def test_a_job_larger_than_any_buffer_arrives(sandbox):
    job = encode_job("def f(x): return len(x)", "f", json.dumps([["x" * 5_000_000]]))
    answers = []
    sandbox.run(job, 5.0, lambda line: answers.append(line), 100)
    assert answers == [b'{"output": 5000000}']


def test_the_description_of_isolation_depends_on_the_layer(sandbox, layer):
    assert ("no network" in sandbox.describe_isolation()) == (layer != "filters")


def test_resource_limits_alone_need_the_unsafe_flag():
    message = r"\(limits: not one of the layers bwrap, .*--unsafe-sandbox"
    with pytest.raises(SandboxError, match=message), Sandbox(layer="limits"):
        pass
    with Sandbox(layer="limits", unsafe=True) as sandbox:
        assert "NOT ISOLATED" in sandbox.describe_isolation()


def test_the_layer_of_filters_needs_both_landlock_and_seccomp():
    """Landlock alone allows signals and sockets, and seccomp alone allows files to be read."""
    with (
        pytest.raises(SandboxError, match="no Landlock and no seccomp"),
        Sandbox(layer="filters", filtered=False),
    ):
        pass


def test_a_layer_that_lets_files_be_read_is_refused(layer, monkeypatch):
    """In this test /etc is among the paths that Python needs."""
    paths = [*sandbox_module._list_readable_paths(), "/etc"]
    monkeypatch.setattr(sandbox_module, "_list_readable_paths", lambda: paths)
    with pytest.raises(SandboxError, match="could read /etc/passwd"), Sandbox(layer=layer):
        pass


def test_a_layer_in_which_a_test_program_does_not_run_is_refused(layer, monkeypatch):
    monkeypatch.setattr(sandbox_module, "_TRIAL", "import missing")
    message = r"a test program did not run \(crashed\): check that user \d+ can read /"
    with pytest.raises(SandboxError, match=message), Sandbox(layer=layer):
        pass


def test_only_the_runner_and_importable_packages_are_visible(layer, tmp_path, monkeypatch):
    """In this test the project is installed in a folder of Python's own library."""
    with Sandbox(layer=layer, guarded=False) as usual_sandbox:
        isolation = usual_sandbox.describe_isolation()
    packages = tmp_path / "lib/python3/site-packages"
    runner = shutil.copytree(sandbox_module._RUNNER, packages / "rapid/runner")
    (packages / "other.py").write_text("secret = 1")
    (packages / "importable.py").write_text("one = 1")
    paths = [*sandbox_module._list_readable_paths()[:-1], str(tmp_path / "lib"), str(runner)]
    monkeypatch.setattr(sandbox_module, "_RUNNER", runner)
    monkeypatch.setattr(
        sandbox_module, "_find_importable_packages", lambda: [str(packages / "importable.py")]
    )
    monkeypatch.setattr(sandbox_module, "_list_readable_paths", lambda: paths)
    with Sandbox(layer=layer, guarded=False) as sandbox:
        assert run_program(sandbox, "def f(): return 1") == 1
        if layer != "filters":  # whose user may not enter pytest's folders
            assert run_program(sandbox, "import importable\ndef f(): return importable.one") == 1
        assert run_program(sandbox, "import other\ndef f(): return 1") == "crashed"
        assert sandbox.describe_isolation() == isolation
        reading_program = report_error(f"open({str(packages / 'other.py')!r})")
        assert run_program(sandbox, reading_program) in ("FileNotFoundError", "PermissionError")


def test_the_sandbox_works_under_a_limit_on_cpu_time():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (100, 100))\n"
        "from rapid.grading.code.sandbox import Sandbox, encode_job\n"
        "job = encode_job('def f(): return 1', 'f', '[[]]')\n"
        "with Sandbox() as sandbox: sandbox.run(job, 300.0, print, 100)"
    )
    assert "output" in python("-c", code).stdout


def test_a_layer_that_does_not_work_is_an_error(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SandboxError, match="bwrap"), Sandbox(layer="bwrap"):
        pass


def test_the_next_layer_is_used_without_bubblewrap(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with Sandbox() as sandbox:
        assert sandbox.layer in ("namespaces", "filters")
        assert run_program(sandbox, "def f(): return 1") == 1
