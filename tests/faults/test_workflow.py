"""Workflows that are killed and jobs that fail: no lock, no orphan, and what failed is said."""

import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
import yaml

from rapid.errors.shortages import shortage
from rapid.processes import locks
from tests.checkout import copy_checkout
from tests.conftest import ROOT
from tests.faults.test_machine import mounted
from tests.subprocesses import naming, wait_for

HOLDER = "import sys, time; from pathlib import Path; from rapid.processes.locks import hold;"
HOLDER += "hold(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
# What Snakemake is to a job: a process that starts a shell for it.
WORKFLOW = """
import subprocess, sys
command = "RAPID_WORKFLOW=$PPID exec " + sys.argv[1]
job = subprocess.Popen(command, shell=True, executable="/bin/bash")
print(job.pid, flush=True)
job.wait()
"""
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))]
JOB = "from rapid.processes.lifetimes import end_with_workflow; end_with_workflow();"
JOB += "import time; time.sleep(600)"
# A warm process whose jobs take their time, and what starts it with a command that it runs.
WARM = """
import sys, time
from pathlib import Path
from rapid.processes.fork_server import serve
ready, run = lambda: time.sleep(0.1), lambda arguments: time.sleep(600)
serve(Path(sys.argv[1]), int(sys.argv[2]), ready, run, lambda arguments: None)
"""
WITH_WARM = """
import os, subprocess, sys
socket = sys.argv[1]
os.environ["RAPID_WARM"] = socket
subprocess.Popen([sys.executable, "-c", sys.argv[2], socket, str(os.getpid())])
while not os.path.exists(socket):
    pass
command = f"RAPID_WORKFLOW=$PPID exec {sys.executable} -m rapid wait {socket}"
jobs = [subprocess.Popen(command, shell=True, executable="/bin/bash") for _ in range(2)]
print(os.getpid(), flush=True)
jobs[0].wait()
"""


def start(*command: str, **options) -> subprocess.Popen:
    """Start a process that says a line when it is ready, and wait for the line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    process.line = process.stdout.readline()
    return process


def kill(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def left(tmp_path) -> list[Path]:
    """Make what a killed workflow leaves in Snakemake's folder."""
    paths = [tmp_path / locks.LOCKS / "0.input.lock", tmp_path / locks.SOCKETS / "123"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("data/math/manifest.json\n")
    return paths


@pytest.mark.fault("lock of a dead workflow")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_workflow_s_lock_is_removed(tmp_path, left, seed):
    """It is killed while others try for the lock, after a while that the seed decides."""
    holder = start(sys.executable, "-c", HOLDER, str(tmp_path))
    for path in left:  # it removed what was there
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text("data/math/manifest.json\n")
    other = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    time.sleep(random.Random(seed).uniform(0, 0.05))
    other.kill()
    other.communicate()
    assert all(path.exists() for path in left)  # its owner lives
    kill(holder)
    locks.hold(tmp_path)
    assert not any(path.exists() for path in left)


def test_what_another_machine_locked_stays(tmp_path, left):
    (tmp_path / locks.HELD).write_text("another-machine")
    locks.hold(tmp_path)
    assert all(path.exists() for path in left)


@pytest.mark.fault("workflow killed while it starts a job")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_ends_with_its_workflow(tmp_path, seed):
    mark = f"job-{tmp_path}"
    command = f"{sys.executable} -c {JOB!r} {mark}"
    workflow = start(sys.executable, "-c", WORKFLOW, command)
    time.sleep(random.Random(seed).uniform(0, 0.4))
    kill(workflow)
    wait_for(lambda: not naming(mark))


@pytest.mark.slow
@pytest.mark.fault("workflow killed beside its warm process")
@pytest.mark.parametrize("seed", range(20))
def test_the_warm_process_and_its_jobs_end_with_the_workflow(tmp_path, seed):
    socket = tmp_path / "s"
    workflow = start(sys.executable, "-c", WITH_WARM, str(socket), WARM)
    time.sleep(random.Random(seed).uniform(0, 0.3))
    kill(workflow)
    wait_for(lambda: not naming(socket))  # it, its commands, and what it forked


def test_a_job_that_nobody_started_goes_on_without_its_parent(tmp_path):
    """A person's `rapid train &` outlives the shell."""
    code = (
        "import os, sys, time; from rapid.processes.lifetimes import end_with_workflow\n"
        "parent = os.getppid(); end_with_workflow(); open(sys.argv[1], 'w').close()\n"
        "while os.getppid() == parent: time.sleep(0.01)\n"
        "open(sys.argv[1], 'w').write('on')"
    )
    shell = '"$0" -c "$1" "$2" & while [ ! -e "$2" ]; do sleep 0.01; done'
    environment = {key: value for key, value in os.environ.items() if key != "RAPID_WORKFLOW"}
    file = tmp_path / "file"
    subprocess.run(
        ["sh", "-c", shell, sys.executable, code, str(file)], env=environment, check=True
    )
    wait_for(lambda: file.read_text() == "on")


# How a job fails: the end of its command, and what is said of it in the end.
LONG = 1200
ESCAPES = r"\033]0;title\007 \033[2J red"
FAILURES = {
    "status1": ("echo wrong >&2; exit 1", "exit status 1", "wrong"),
    "status2": ("echo '2 of 3' >&2; exit 2", "exit status 2", "2 of 3"),
    "status127": ("no-such-command", "exit status 127", "no-such-command"),
    "status255": ("exit 255", "exit status 255", "says nothing"),
    "SIGKILL": ("kill -9 $$", "killed by SIGKILL; if nobody did that, memory ran out", "nothing"),
    "SIGSEGV": ("echo so far; kill -SEGV $$", "killed by SIGSEGV", "so far"),
    "SIGABRT": ("kill -ABRT $$", "killed by SIGABRT", "says nothing"),
    "SIGTERM": ("kill -TERM $$", "killed by SIGTERM", "says nothing"),
    "SIGBUS": ("kill -BUS $$", "killed by SIGBUS", "says nothing"),
    "long": ("seq 1000; exit 1", "exit status 1", "1000"),
    "wide": (f"printf 'x%.0s' $(seq {LONG}); exit 1", "exit status 1", "xxx..."),
    "bar": (r"printf '1/9\r5/9\r9/9'; exit 3", "exit status 3", "9/9"),
    "escapes": (f"printf '{ESCAPES}'; exit 1", "exit status 1", "red"),
    "binary": (r"printf '\377\376\000end'; exit 1", "exit status 1", "end"),
    "blank": (r"printf '\n\n\n'; exit 1", "exit status 1", "says nothing"),
    "unicode": ("echo 'größer — 雪'; exit 1", "exit status 1", "größer — 雪"),
    "traceback": ("python -c 'raise ValueError(7)'", "exit status 1", "ValueError: 7"),
    "nolog": ("rm {log}; exit 1", "exit status 1", "says nothing"),
    "percent": ("echo '100% {{x}} %s'; exit 1", "exit status 1", "100% {x} %s"),
    "late": ("sleep 0.5; echo late; exit 1", "exit status 1", "late"),
}
SNAKEFILE = """
import sys
sys.path.insert(0, {root!r})
from snakemake.logging import logger
from rapid.console import workflow as console
CONSOLE = console.install(logger, workflow.output_settings)

onerror:
    logger.error(CONSOLE.failures())

rule all:
    input: [f"bad/{{name}}/made" for name in {names}], [f"good/{{n}}/made" for n in range(20)],
        "after/made"
rule good:
    output: "good/{{n}}/made"
    log: "logs/good{{n}}.log"
    shell: "(echo good/{{wildcards.n}}: pass@1 {{wildcards.n}}.0%; echo more; touch {{output}}) > {{log}} 2>&1"
rule after:
    input: "bad/status1/made", [f"good/{{n}}/made" for n in range(20)]
    output: "after/made"
    shell: "touch {{output}}"
"""
BAD = """
rule bad_{name}:
    output: "bad/{name}/made"
    log: "logs/{name}.log"
    shell: {command!r}
"""


@pytest.fixture(scope="module")
def failing(tmp_path_factory) -> str:
    """What Snakemake says of 20 jobs that fail and 20 that do not, with the project's profile."""
    folder = tmp_path_factory.mktemp("failing")
    shutil.copytree(ROOT / "profiles", folder / "profiles")
    text = SNAKEFILE.format(root=str(ROOT), names=list(FAILURES))
    for name, (command, _, _) in FAILURES.items():
        text += BAD.format(name=name, command=f"exec bash -c {quoted(command)} > {{log}} 2>&1")
    (folder / "Snakefile").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "2", "--nocolor"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert not (folder / "after/made").exists()
    return done.stderr


def quoted(command: str) -> str:
    """Return a command in quotes of the shell, `{log}` being outside of them."""
    return "'" + command.replace("'", "'\\''").replace("{log}", "'{log}'") + "'"


@pytest.mark.fault("job that fails")
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_said_in_ten_lines_at_the_end(failing, name):
    _, how, said = FAILURES[name]
    _, _, end = failing.partition("20 failed:")
    [block] = [part for part in end.split("\n\n") if part.startswith(f"FAILED bad_{name} ")]
    lines = block.splitlines()
    assert len(lines) <= 10 and max(map(len, lines)) < 170
    assert how in lines[0] and f"logs/{name}.log" in lines[1]
    assert said in lines[-1]
    assert all(char.isprintable() for line in lines for char in line)


@pytest.mark.fault("job beside one that fails")
@pytest.mark.parametrize("n", range(20))
def test_a_job_that_needs_no_failed_one_is_made_and_has_a_line(failing, n):
    [line] = [line for line in failing.splitlines() if f" good good/{n}: " in line]
    assert re.fullmatch(
        rf"\[ ?\d+/42\] good good/{n}: pass@1 {n}\.0% \(\d+\.\ds(, about [\dhms.]+ left)?\)", line
    )


def test_the_console_is_short(failing):
    said = failing[failing.index("total") :]
    assert "rule " not in said and "RuleException" not in said
    assert len(said.splitlines()) < 2 * 20 + 11 * 20 + 20


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the project, with an experiment of over a thousand runs beside it."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    many = {"name": "many", "tables": {"main": {"seeds": list(range(1, 43))}}}
    (folder / "experiments/many.yaml").write_text(yaml.safe_dump(many))
    return folder


def snakemake(folder: Path, experiment: str, *targets: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--nocolor", *targets]
    command += ["--configfile", "params.yaml", f"experiments/{experiment}.yaml"]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def working_in(folder: Path) -> list[psutil.Process]:
    found = psutil.process_iter(["cwd", "status"])
    return [
        process
        for process in found
        if process.info["cwd"] == str(folder) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


@pytest.mark.slow
@pytest.mark.fault("Snakemake killed, its jobs and its warm process with it", times=4)
def test_a_killed_snakemake_leaves_nothing_and_goes_on(checkout, tmp_path):
    made = "experiments/ci/models/tokenizer/manifest.json"
    moments = random.Random(0)
    options = {"env": {**os.environ, "TMPDIR": str(tmp_path)}}
    for _ in range(4):
        killed = snakemake(checkout, "ci", made, **options)
        for line in killed.stdout:
            if line.startswith(("Job stats", "Nothing")):
                break
        time.sleep(moments.uniform(0, 6))
        kill(killed)
        wait_for(lambda: not working_in(checkout))
    last = snakemake(checkout, "ci", made, **options)
    assert last.communicate() and last.returncode == 0
    assert (checkout / made).exists()
    assert not (checkout / ".snakemake" / locks.LOCKS).exists()
    # One folder for all jobs' leases, and empty ones that torch and a killed Snakemake leave.
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == {f"rapid-cores-{os.geteuid()}"}
    wait_for(lambda: not working_in(checkout))
    assert not [*(checkout / ".snakemake" / locks.SOCKETS).glob("*")]


@pytest.mark.slow
@pytest.mark.fault("disk full")
def test_a_full_disk_is_named_by_snakemake_too(tmp_path):
    folder, made = tmp_path / "disk", "experiments/ci/data/math/manifest.json"
    with mounted(folder, "size=48m"):
        copy_checkout(folder)
        free = os.statvfs(folder)
        (folder / "fill").write_bytes(bytes((free.f_bavail - 2) * free.f_bsize))  # but for its log
        full = snakemake(folder, "ci", made)
        said, _ = full.communicate()
        assert full.returncode and "Snakemake: no room on the disk: " in said, said
        assert "Traceback" not in said
        (folder / "fill").unlink()
        again = snakemake(folder, "ci", made)
        said, _ = again.communicate()
        assert again.returncode == 0 and (folder / made).exists(), said


@pytest.mark.fault("disk full", times=8)
def test_whatever_torch_says_of_a_full_disk_is_known(tmp_path):
    """It depends on which write was the first that failed."""
    with mounted(tmp_path / "disk", "size=4096"):
        for size in range(3000, 7000, 500):
            with pytest.raises(RuntimeError) as refusal:
                torch.save("x" * size, tmp_path / "disk/file")
            assert shortage(refusal.value).startswith("no room on the disk: ")


@pytest.mark.slow
def test_a_thousand_runs_are_planned_in_20_seconds_of_a_processor(checkout):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said, _ = snakemake(checkout, "many", "-n").communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert int(re.search(r"^train +(\d+)$", said, re.MULTILINE)[1]) >= 1000
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 20
    assert "workflow specific profile profiles/default" in said
    assert max(map(len, said.splitlines())) < 300
