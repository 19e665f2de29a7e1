"""The walls themselves, attacked without the guard in Python that stands before them.

Nothing here would do harm if a wall fell: these tests must be safe to run as any user.
"""

import json
import os
import signal
import socket
import sys
import time

import pytest

from rapid.grading import sandbox as sandbox_module
from rapid.grading.inside import wire
from rapid.grading.sandbox import Sandbox, SandboxError, encode_job

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="a wall of Linux")


def call(sandbox: Sandbox, program: str, timeout: float = 5.0):
    """What `f()` of the program returns in the sandbox, or the reason why it returns nothing."""
    answers = []
    job = encode_job(program, "f", "[[]]")
    ending = sandbox.run(job, timeout, lambda line: answers.append(json.loads(line)), 10**6)
    if not answers:
        return ending
    return wire.decode(answers[0]["output"]) if "output" in answers[0] else answers[0]["reason"]


def error_of(action: str) -> str:
    """A program whose `f()` returns the name of the error that an action raises."""
    return (
        "import _thread, os, socket\n"
        "def f():\n"
        "    try:\n"
        f"        {action}\n"
        "    except Exception as error:\n"
        "        return type(error).__name__\n"
    )


def test_files_of_the_host_are_out_of_sight(sandbox, enclosed):
    assert call(sandbox, error_of(f"open({__file__!r})")) == "FileNotFoundError"


def test_nothing_can_be_written(sandbox, enclosed):
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
    assert call(sandbox, program, timeout=20.0) == []


def test_a_server_of_the_host_is_out_of_reach(sandbox, enclosed):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        error = call(sandbox, error_of(f"socket.create_connection({address}, 1)"))
    assert error in ("OSError", "ConnectionRefusedError")  # without and with a loopback device


def test_no_process_can_be_started(sandbox):
    assert call(sandbox, error_of("os._exit(0) if os.fork() == 0 else None")) == "BlockingIOError"


def test_no_thread_can_be_started(sandbox):
    assert call(sandbox, error_of("_thread.start_new_thread(print, ())")) == "RuntimeError"


def test_the_file_size_limit_holds_for_files_in_memory(sandbox):
    if not hasattr(os, "memfd_create"):
        pytest.skip("no files in memory here")
    assert call(sandbox, error_of("os.write(os.memfd_create('a'), b'a')")) == "OSError"


def test_no_limit_can_be_lifted(sandbox):
    program = """
import resource
def f():
    try:
        resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))
    except ValueError:
        return "refused"
"""
    assert call(sandbox, program) == "refused"


@needs_linux
def test_a_completion_is_not_root_and_has_no_capability(sandbox):
    program = """
import ctypes, os
def f():
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capget(ctypes.byref(header), ctypes.byref(data))
    return os.getuid() == 0 or os.geteuid() == 0, sum(data)
"""
    assert call(sandbox, program) == (False, 0)


def test_only_the_answer_socket_is_inherited(sandbox):
    program = """
import os, stat
def f():
    sockets = 0
    for fd in range(256):
        try:
            sockets += stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            pass
    return sockets
"""
    assert call(sandbox, program) == 1


def test_the_environment_is_empty(sandbox, monkeypatch):
    monkeypatch.setenv("A_SECRET", "1")
    assert "A_SECRET" not in call(sandbox, "import os\ndef f(): return list(os.environ)")


@needs_linux
def test_the_affinity_is_that_of_the_job(layer):
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        with Sandbox(layer=layer, guarded=False) as pinned:
            program = "import os\ndef f(): return os.sched_getaffinity(0)"
            assert call(pinned, program) == {max(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_the_death_of_the_runner_is_survived(layer):
    with Sandbox(layer=layer) as fresh:
        os.kill(fresh._runner.pid, signal.SIGKILL)
        call(fresh, "def f(): return 1")
        assert call(fresh, "def f(): return 1") == 1


def test_a_runner_that_does_not_respond_is_replaced(monkeypatch):
    monkeypatch.setattr(sandbox_module, "GRACE_SECONDS", 0.1)
    with Sandbox(layer="limits") as fresh:
        os.kill(fresh._runner.pid, signal.SIGSTOP)
        assert call(fresh, "def f(): return 1", timeout=0.1) == sandbox_module.TIMED_OUT
        assert call(fresh, "def f(): return 1") == 1


def test_a_restart_keeps_the_layer(layer):
    with Sandbox(layer=layer) as fresh:
        fresh._runner.kill()
        fresh._runner.wait()
        assert call(fresh, "def f(): return 1") == 1
        assert fresh.layer == layer


def test_nothing_runs_on_after_the_sandbox(layer):
    with Sandbox(layer=layer) as fresh:
        runner = fresh._runner
    assert runner.poll() is not None


def test_a_receiver_that_has_enough_ends_the_job(sandbox):
    """Its error too: the job after it starts afresh."""
    job = encode_job("def f(x):\n    while x: pass\n    return x", "f", "[[0], [1]]")
    start = time.monotonic()
    assert sandbox.run(job, 30.0, lambda line: False, 100) == sandbox_module.STOPPED
    with pytest.raises(ZeroDivisionError):
        sandbox.run(job, 30.0, lambda line: 1 / 0, 100)
    assert call(sandbox, "def f(): return 1") == 1
    assert time.monotonic() - start < 5.0


def test_a_job_larger_than_any_buffer_arrives(sandbox):
    job = encode_job("def f(x): return len(x)", "f", json.dumps([["x" * 5_000_000]]))
    answers = []
    sandbox.run(job, 5.0, lambda line: answers.append(line), 100)
    assert answers == [b'{"output": 5000000}']


def test_the_walls_are_described(sandbox, layer):
    described = sandbox.describe_walls()
    assert ("no network" in described) == (layer != "limits")


def test_a_layer_that_does_not_work_is_an_error(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SandboxError, match="bwrap"), Sandbox(layer="bwrap"):
        pass


def test_without_bubblewrap_the_next_layer_is_taken(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with Sandbox() as chosen:
        assert chosen.layer in ("namespaces", "limits")
        assert call(chosen, "def f(): return 1") == 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [1, 2.5, "a", "\udcff", float("inf")],
        (1, (2, [3])),
        {1: (2,), (3, 4): {5}},
        {frozenset({1}), frozenset()},
        2**63,
        -(16**5000),
        1 + 2j,
        b"\x00\xff",
        {},
        set(),
        (),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_arrives_as_it_was(value):
    arrived = wire.decode(json.loads(json.dumps(wire.encode(value))))
    assert arrived == value
    assert type(arrived) is type(value)


def test_not_a_number_arrives():
    arrived = wire.decode(json.loads(json.dumps(wire.encode(float("nan")))))
    assert arrived != arrived


@pytest.mark.parametrize(
    "data", [{"tuple": 1}, {"int": "x"}, {"a": 1}, {}, {"dict": [1]}, {"set": [[]]}]
)
def test_what_was_not_encoded_is_refused(data):
    with pytest.raises((ValueError, TypeError)):
        wire.decode(data)
