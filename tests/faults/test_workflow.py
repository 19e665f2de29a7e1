"""A killed workflow leaves no lock and no process; failed jobs are listed at the end."""

import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rapid.processes import locks
from tests.checkout import copy_checkout
from tests.conftest import ROOT
from tests.faults.test_shortages import mount_memory
from tests.subprocesses import find_processes_naming, python, wait_for

HOLD_LOCK = "import sys, time; from pathlib import Path; from rapid.processes.locks import hold_workflow_lock;"
HOLD_LOCK += "hold_workflow_lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
# Stands in for Snakemake, which starts a shell for each job.
WORKFLOW = """
import subprocess, sys
command = "RAPID_WORKFLOW=$PPID exec " + sys.argv[1]
job = subprocess.Popen(command, shell=True, executable="/bin/bash")
print(job.pid, flush=True)
job.wait()
"""
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))]
JOB_CODE = "from rapid.processes.lifetimes import end_with_workflow; end_with_workflow();"
JOB_CODE += "import time; time.sleep(600)"


def start_process(*command: str, **options) -> subprocess.Popen:
    """Start a process, and wait for the line that it prints when it is ready."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    process.stdout.readline()
    return process


def kill_process(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def leftovers(tmp_path) -> list[Path]:
    """Return the files that a killed workflow leaves in Snakemake's folder."""
    paths = [
        tmp_path / locks.SNAKEMAKE_LOCKS / "0.input.lock",
        tmp_path / locks.FORK_SERVER_SOCKETS / "123",
    ]
    for path in paths:
        path.parent.mkdir()
        path.write_text("data/math/manifest.json\n")
    return paths


@pytest.mark.fault("workflow: lock of a killed workflow")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_lock_of_a_dead_workflow_is_removed(tmp_path, leftovers, seed):
    """The workflow is killed after another process has tried to get the lock."""
    holder = start_process(sys.executable, "-c", HOLD_LOCK, str(tmp_path))
    for path in leftovers:  # the holder has removed them
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text("data/math/manifest.json\n")
    competing_process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(tmp_path)], stdout=subprocess.PIPE
    )
    time.sleep(random.Random(seed).uniform(0, 0.05))
    competing_process.kill()
    competing_process.communicate()
    assert all(path.exists() for path in leftovers)  # the owner of the lock runs
    kill_process(holder)
    locks.hold_workflow_lock(tmp_path)
    assert not any(path.exists() for path in leftovers)


def test_a_lock_of_another_machine_is_kept(tmp_path, leftovers):
    (tmp_path / locks.WORKFLOW_LOCK).write_text("another-machine")
    locks.hold_workflow_lock(tmp_path)
    assert all(path.exists() for path in leftovers)


@pytest.mark.fault("workflow: killed while starting a job")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_ends_with_its_workflow(tmp_path, seed):
    mark = f"job-{tmp_path}"
    command = f"{sys.executable} -c {JOB_CODE!r} {mark}"
    workflow = start_process(sys.executable, "-c", WORKFLOW, command)
    time.sleep(random.Random(seed).uniform(0, 0.4))
    kill_process(workflow)
    wait_for(lambda: not find_processes_naming(mark))


def test_a_job_outside_a_workflow_outlives_its_shell(tmp_path):
    """The job is started as `rapid train &`."""
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


# Commands of failing jobs, the console's description of their end, and the last line that it shows.
WIDTH = 1200
ESCAPES = r"\033]0;title\007 \033[2J red"
FAILURES = {
    "status1": ("echo wrong >&2; exit 1", "exit status 1", "wrong"),
    "status2": ("echo '2 of 3' >&2; exit 2", "exit status 2", "2 of 3"),
    "status127": ("no-such-command", "exit status 127", "no-such-command"),
    "status255": ("exit 255", "exit status 255", "is empty"),
    "SIGKILL": (
        "kill -9 $$",
        "killed by SIGKILL; if nobody sent this signal, the machine probably ran out of memory",
        "is empty",
    ),
    "SIGSEGV": ("echo so far; kill -SEGV $$", "killed by SIGSEGV)", "so far"),
    "SIGABRT": ("kill -ABRT $$", "killed by SIGABRT)", "is empty"),
    "SIGTERM": ("kill -TERM $$", "killed by SIGTERM)", "is empty"),
    "SIGBUS": ("kill -BUS $$", "killed by SIGBUS)", "is empty"),
    "long": ("seq 1000; exit 1", "exit status 1", "1000"),
    "wide": (f"printf 'x%.0s' $(seq {WIDTH}); exit 1", "exit status 1", "xxx..."),
    "bar": (r"printf '1/9\r5/9\r9/9'; exit 3", "exit status 3", "9/9"),
    "escapes": (f"printf '{ESCAPES}'; exit 1", "exit status 1", "red"),
    "binary": (r"printf '\377\376\000end'; exit 1", "exit status 1", "end"),
    "blank": (r"printf '\n\n\n'; exit 1", "exit status 1", "is empty"),
    "unicode": ("echo 'größer — 雪'; exit 1", "exit status 1", "größer — 雪"),
    "traceback": ("python -c 'raise ValueError(7)'", "exit status 1", "ValueError: 7"),
    "nolog": ("rm {log}; exit 1", "exit status 1", "is empty"),
    "percent": ("echo '100% {{x}} %s'; exit 1", "exit status 1", "100% {x} %s"),
    "late": ("sleep 0.5; echo late; exit 1", "exit status 1", "late"),
}
SNAKEFILE = """
import sys
sys.path.insert(0, {root!r})
from snakemake.logging import logger
from rapid.console import workflow as console
CONSOLE = console.install_console(logger, workflow.output_settings)

onerror:
    logger.error(CONSOLE.render_failures())

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
FAILING_RULE = """
rule bad_{name}:
    output: "bad/{name}/made"
    log: "logs/{name}.log"
    shell: {command!r}
"""


@pytest.fixture(scope="module")
def console_log(tmp_path_factory) -> str:
    """The output of 20 failing and 20 successful jobs with the project's profile."""
    folder = tmp_path_factory.mktemp("failing")
    shutil.copytree(ROOT / "profiles", folder / "profiles")
    text = SNAKEFILE.format(root=str(ROOT), names=list(FAILURES))
    for name, (command, _, _) in FAILURES.items():
        text += FAILING_RULE.format(
            name=name, command=f"exec bash -c {quote_for_shell(command)} > {{log}} 2>&1"
        )
    (folder / "Snakefile").write_text(text)
    command = ("-m", "snakemake", "--cores", 2, "--nocolor")
    ended = python(*command, folder=folder, status=1)
    assert not (folder / "after/made").exists()
    return ended.stderr


def quote_for_shell(command: str) -> str:
    """Quote a command for the shell, without `{log}`."""
    return "'" + command.replace("'", "'\\''").replace("{log}", "'{log}'") + "'"


@pytest.mark.fault("workflow: job fails")
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_summarized_in_at_most_ten_lines(console_log, name):
    _, description, last_line = FAILURES[name]
    _, _, summary = console_log.partition("20 job(s) failed:")
    [block] = [part for part in summary.split("\n\n") if part.startswith(f"FAILED bad_{name} ")]
    lines = block.splitlines()
    assert len(lines) <= 10 and max(map(len, lines)) < 170
    assert description in lines[0] and f"logs/{name}.log" in lines[1]
    assert last_line in lines[-1]
    assert all(character.isprintable() for line in lines for character in line)


@pytest.mark.fault("workflow: job independent of a failed one")
@pytest.mark.parametrize("n", range(20))
def test_a_job_that_depends_on_no_failed_job_runs_and_has_a_line(console_log, n):
    [line] = [line for line in console_log.splitlines() if f" good good/{n}: " in line]
    assert re.fullmatch(
        rf"\[ ?\d+/42\] good good/{n}: pass@1 {n}\.0% \(\d+\.\ds(, about [\dhms.]+ left)?\)", line
    )


def test_the_output_of_the_console_is_short(console_log):
    text = console_log[console_log.index("total") :]
    assert "rule " not in text and "RuleException" not in text
    assert len(text.splitlines()) < 2 * 20 + 11 * 20 + 20


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the project, with an experiment of over a thousand runs beside it."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    many = {"name": "many", "tables": {"main": {"seeds": list(range(1, 43))}}}
    (folder / "experiments/many.yaml").write_text(yaml.safe_dump(many))
    return folder


def start_snakemake(folder: Path, experiment: str, *targets: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--nocolor", *targets]
    command += ["--configfile", "params.yaml", f"experiments/{experiment}.yaml"]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


@pytest.mark.slow
@pytest.mark.fault("machine: disk full")
def test_snakemake_reports_a_full_disk(tmp_path):
    folder, target = tmp_path / "disk", "experiments/ci/data/math/manifest.json"
    with mount_memory(folder, "size=48m"):
        copy_checkout(folder)
        file_system = os.statvfs(folder)
        # The file leaves room for Snakemake's log only.
        free_bytes = (file_system.f_bavail - 2) * file_system.f_bsize
        (folder / "fill").write_bytes(bytes(free_bytes))
        first_attempt = start_snakemake(folder, "ci", target)
        output, _ = first_attempt.communicate()
        assert first_attempt.returncode and "Snakemake: no space left on the disk: " in output, (
            output
        )
        assert "Traceback" not in output
        (folder / "fill").unlink()
        second_attempt = start_snakemake(folder, "ci", target)
        output, _ = second_attempt.communicate()
        assert second_attempt.returncode == 0 and (folder / target).exists(), output


@pytest.mark.slow
def test_a_thousand_runs_are_planned_in_eight_times_the_time_of_few(checkout):
    """CPU time of a few runs is that of imports, on any processor."""

    def plan_runs(experiment: str) -> tuple[str, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output, _ = start_snakemake(checkout, experiment, "-n").communicate()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return output, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    _, seconds_of_few = plan_runs("ci")
    output, seconds = plan_runs("many")
    assert int(re.search(r"^train +(\d+)$", output, re.MULTILINE)[1]) >= 1000
    assert seconds < 8 * seconds_of_few
    assert "workflow specific profile profiles/default" in output
    assert max(map(len, output.splitlines())) < 300
