"""Commands behave in a child of the fork server as they do by themselves."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from rapid.processes import fork_server
from rapid.processes.fork_server import get_attempt
from tests.subprocesses import assert_gone, kill_at_end, python, wait_for

RAPID = [sys.executable, "-m", "rapid"]
SPEC = '{"benchmark": "math", "data_seed": 0, "train": 4, "test": 4, "demonstrations": 20}'
# A fork server. The braces stand for the code of its jobs, which is one of the texts below.
FORK_SERVER = """
import gc, os, signal, sys, time
from pathlib import Path
from rapid.processes import fork_server
prepare = lend = lambda *_: None
{}
fork_server.serve_requests(Path(sys.argv[1]), int(sys.argv[2]), prepare, run, lend)
"""
# Runs commands of `rapid`, without the imports that `rapid fork-server` does first.
COMMANDS = "from rapid.cli import run"
# A job that prints its process and environment, and then takes its time.
SLOW = """
def run(arguments):
    frozen = gc.get_freeze_count() > 0
    here = os.environ["COLOUR"], os.environ.get("OF_THE_SERVER")
    print(os.getpid(), os.getcwd(), *here, frozen, *arguments, flush=True)
    time.sleep(60)
def prepare():
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
"""
# Jobs that take a moment to save on SIGTERM, and write how often they got the signal.
SAVING = """
signals = []
def run(arguments):
    signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
    print("ready", flush=True)
    while not signals:
        time.sleep(0.01)
    time.sleep(0.5)
    Path(arguments[0]).write_text(str(len(signals)))
"""
# Jobs that get SIGTERM before they have handlers of their own.
SIGTERM_EARLY = """
run = lambda arguments: 0
fork_server.end_with_parent = lambda number=signal.SIGKILL: number and os.kill(os.getpid(), signal.SIGTERM)
"""
# Jobs that print what was lent to them, and end as their argument says. The server prints what it
# takes back.
LENDING = """
lent = []
def lend(arguments):
    if "nothing" in arguments:
        return None
    lent.append(len(lent))
    return lambda ended_well: print("back:", *arguments, ended_well, flush=True)
def run(arguments):
    print("lent:", lent, flush=True)
    if "killed" in arguments:
        os.kill(os.getpid(), signal.SIGKILL)
    return int("failed" in arguments)
"""
# Jobs that are killed by the signal that their argument names.
KILLED = """
def run(arguments):
    os.kill(os.getpid(), signal.Signals[arguments[0]])
"""
# A server without enough memory to fork its first two jobs.
OUT_OF_MEMORY = """
def lend(arguments):
    return lambda ended_well: print("back:", *arguments, ended_well, flush=True)
def run(arguments):
    return 0
fork, failures = os.fork, [1, 2]
def fail_twice():
    if failures:
        failures.pop()
        raise OSError(12, "Cannot allocate memory")
    return fork()
os.fork = fail_twice
"""
# Jobs that ask to be run again until the attempt whose number is their argument.
DISTURBED = """
def run(arguments):
    print(fork_server.get_attempt(), flush=True)
    return fork_server.RETRY_STATUS if fork_server.get_attempt() < int(arguments[0]) else 0
fork_server.MAX_RETRY_SHARE = {share}
"""
# A program that rehearses, loads a model as jobs do, and prints the packages that are imported only then.
AFTER_REHEARSAL = """
import sys
from rapid.stages.warm_up import warm_up
warm_up()
before = set(sys.modules)
from accelerate.utils import extract_model_from_parallel
from transformers import AutoModelForCausalLM, Qwen2Config
tiny = dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size"), 64)
AutoModelForCausalLM.from_config(Qwen2Config(**tiny)).save_pretrained(sys.argv[1])
extract_model_from_parallel(AutoModelForCausalLM.from_pretrained(sys.argv[1]))
print("imported:", *{name.split(".")[0] for name in set(sys.modules) - before})
"""


@contextmanager
def run_fork_server(path, code, **options):
    """Run a fork server whose jobs have this code, and end it after the block."""
    command = [sys.executable, "-c", FORK_SERVER.format(code), str(path), str(os.getpid())]
    server = subprocess.Popen(command, text=True, **options)
    with kill_at_end(server):
        wait_for(path.exists)
        yield server


@pytest.fixture
def path(tmp_path_factory):
    """Path of a socket; that of `tmp_path` can be longer than the 107 bytes that Linux allows."""
    return tmp_path_factory.mktemp("s") / "socket"


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("s") / "socket"
    with run_fork_server(path, COMMANDS):
        yield path


def fork_server_options(path) -> dict:
    """Return subprocess options for a command that a fork server runs."""
    return {"env": os.environ | {"RAPID_FORK_SERVER": str(path)}, "text": True}


def run_rapid(socket_path, *arguments, **options):
    options = {
        "capture_output": True,
        "check": False,
        **fork_server_options(socket_path),
        **options,
    }
    return subprocess.run([*RAPID, *arguments], **options)


def start_rapid(path, *arguments, **options):
    return subprocess.Popen(
        [*RAPID, *arguments], stdout=subprocess.PIPE, **fork_server_options(path), **options
    )


def test_the_caller_gets_the_output_and_status_of_the_command(socket_path):
    result = run_rapid(socket_path, "prepare", "--spec", "{", "--out", "x")
    assert result.returncode == 2
    assert result.stderr.startswith("rapid prepare: --spec: not JSON")
    assert run_rapid(socket_path, "--help").stdout == run_rapid("/no/socket", "--help").stdout


@pytest.mark.parametrize("starts", [True, False])
def test_a_training_waits_until_the_fork_server_is_ready_or_has_ended(path, monkeypatch, starts):
    """Its runtime would include the fork server's imports, which use the same cores."""
    code = "import time; time.sleep(2)"
    if starts:
        code += f"; open({str(path)!r}, 'w').close(); time.sleep(60)"
    server = subprocess.Popen([sys.executable, "-c", code])
    monkeypatch.setenv(fork_server.SOCKET_VARIABLE, str(path))
    monkeypatch.setenv(fork_server.PID_VARIABLE, str(server.pid))
    with kill_at_end(server):
        started = time.monotonic()
        assert fork_server.run_in_child(["evaluate"]) is None
        assert time.monotonic() - started < 1.5
        assert fork_server.run_in_child(["train"]) is None  # nothing listens
        assert path.exists() == starts
        assert starts or server.poll() == 0


def test_a_command_whose_environment_cannot_be_sent_runs_by_itself(socket_path, tmp_path):
    large = {f"LARGE_{n}": "x" * 100_000 for n in range(8)}
    environment = fork_server_options(socket_path)["env"] | large
    result = run_rapid(
        socket_path, "prepare", "--spec", SPEC, "--out", "x", cwd=tmp_path, env=environment
    )
    assert result.returncode == 0, result.stderr


def test_a_command_writes_the_same_files_into_the_folder_of_its_caller(socket_path, tmp_path):
    for name, path in (("forked", socket_path), ("alone", "/no/socket")):
        result = run_rapid(path, "prepare", "--spec", SPEC, "--out", name, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    for file in ("train.jsonl", "test.jsonl", "pretrain.jsonl"):
        assert (tmp_path / "forked" / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()


def test_a_job_that_gets_sigterm_at_its_start_ends(path):
    with run_fork_server(path, SIGTERM_EARLY):
        ended = run_rapid(path, "whatever")
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, ""), ended.stderr


def test_the_child_of_a_killed_command_ends(path, monkeypatch, tmp_path):
    with run_fork_server(path, SLOW, env=os.environ | {"OF_THE_SERVER": "and not of the command"}):
        monkeypatch.setenv("COLOUR", "green")
        client = start_rapid(path, "one", "two", cwd=tmp_path)
        pid, *printed_environment = client.stdout.readline().split()
        assert printed_environment == [str(tmp_path), "green", "None", "True", "one", "two"]
        with kill_at_end(client):
            pass
        assert_gone(int(pid))


def test_a_client_that_sends_no_request_is_ignored(path):
    with run_fork_server(path, LENDING):
        for _ in range(2):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(str(path))
        assert run_rapid(path, "nothing").returncode == 0


def test_a_job_ends_with_the_fork_server(path, monkeypatch):
    monkeypatch.setenv("COLOUR", "red")
    with run_fork_server(path, SLOW):
        command = start_rapid(path, "job", stderr=subprocess.PIPE)
        job = int(command.stdout.readline().split()[0])
    _, errors = command.communicate()
    assert command.returncode == 1
    assert "has ended, and this job with it. Run the workflow again\n" in errors
    assert_gone(job)


def test_a_job_has_time_to_save_when_its_command_or_the_server_ends(path, tmp_path):
    with run_fork_server(path, SAVING) as server:
        commands = [start_rapid(path, saved, cwd=tmp_path) for saved in ("first", "second")]
        for command in commands:
            command.stdout.readline()
        commands[0].send_signal(signal.SIGKILL)
        server.send_signal(signal.SIGTERM)
        server.wait()
    for command, saved in zip(commands, ("first", "second"), strict=True):
        command.wait()
        # One signal is for the end of the command, and one for the end of the server.
        assert int((tmp_path / saved).read_text()) <= 2


def test_lent_processes_reach_the_child_and_are_taken_back(path):
    with run_fork_server(path, LENDING, stdout=subprocess.PIPE) as server:
        ended = [run_rapid(path, outcome) for outcome in ("well", "failed", "killed", "nothing")]
    lent = [job.stdout for job in ended]
    assert lent == ["lent: [0]\n", "lent: [0, 1]\n", "lent: [0, 1, 2]\n", "lent: [0, 1, 2]\n"]
    killed = ended[-2]
    assert killed.returncode == 128 + signal.SIGKILL
    assert "rapid: the job was killed by SIGKILL" in killed.stderr
    returned = ["back: well True", "back: failed False", "back: killed False"]
    assert server.stdout.read().splitlines() == returned


def test_only_sigkill_is_said_to_suggest_a_lack_of_memory(path):
    names = ("SIGKILL", "SIGSEGV", "SIGTERM")
    with run_fork_server(path, KILLED):
        errors = [run_rapid(path, name).stderr for name in names]
    memory = "if nobody sent this signal, the machine probably ran out of memory (see dmesg)"
    assert errors == [
        f"rapid: the job was killed by SIGKILL; {memory}\n",
        "rapid: the job was killed by SIGSEGV\n",
        "rapid: the job was killed by SIGTERM\n",
    ]


def test_a_job_that_cannot_be_forked_fails_and_later_jobs_run(path):
    """This holds also for a command whose error output nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    with run_fork_server(path, OUT_OF_MEMORY, stdout=subprocess.PIPE) as server:
        first = run_rapid(path, "first")
        second = run_rapid(path, "second", capture_output=False, stderr=writing)
        third = run_rapid(path, "third")
    os.close(writing)
    assert [job.returncode for job in (first, second, third)] == [1, 1, 0]
    assert (
        first.stderr
        == "rapid: the fork server cannot start this job: [Errno 12] Cannot allocate memory\n"
    )
    returned = [f"back: {name} True" for name in ("first", "second", "third")]
    assert server.stdout.read().splitlines() == returned


def test_a_fork_server_ends_if_its_parent_ended_during_the_start(path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    python("-c", FORK_SERVER.format(SLOW), path, ended.pid)


@pytest.mark.slow
def test_a_job_that_loads_a_model_imports_no_further_package(tmp_path):
    result = python("-c", AFTER_REHEARSAL, tmp_path)
    # multiprocessing is for the lock of progress bars, which each job must have for itself: a job
    # that is killed does not release it.
    assert result.stdout.splitlines()[-1] in ("imported:", "imported: multiprocessing")


@pytest.fixture
def run_attempts(request, path):
    """Return a function that runs the command once and returns the numbers of its attempts."""

    def run(first_undisturbed: int) -> list[int]:
        result = run_rapid(path, str(first_undisturbed))
        assert result.returncode == 0
        return [int(line) for line in result.stdout.split()]

    with run_fork_server(path, DISTURBED.format(share=request.param)):
        yield run


@pytest.mark.parametrize("run_attempts", [1.0], indirect=True)
def test_a_disturbed_command_has_three_attempts_at_most(run_attempts):
    assert get_attempt() == 1  # without a fork server
    assert [run_attempts(number) for number in (1, 2, 9)] == [[1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize("run_attempts", [0.25], indirect=True)
def test_only_a_share_of_disturbed_commands_is_run_again(run_attempts):
    """With a share of a quarter: the first command and the fourth."""
    assert [len(run_attempts(9)) for _ in range(5)] == [2, 1, 1, 2, 1]
