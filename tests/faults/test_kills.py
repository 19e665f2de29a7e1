"""What is killed goes on when the same command is given again, and ends as if nothing had been."""

import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from rapid.artifacts.files import read_jsonl
from rapid.artifacts.manifests import MANIFEST
from rapid.artifacts.runs import CHECKPOINTS, StepRecord
from rapid.config.params import CHECKPOINT_VARIABLE
from rapid.resources.leases import usable_cores
from tests.faults.runs import PATIENCE, Workshop, is_held
from tests.subprocesses import adopting

KILLS = 8
RAPID, DAPO, SFT, EVALUATION = "rapid-H2,snapshots=2", "dapo-H2", "sft", "evaluation"
GROUP = Path("/sys/fs/cgroup/memory/rapid-faults")  # a control group, version 1


@pytest.fixture(scope="module")
def workshop(toy_model, tmp_path_factory):
    """A workshop where each job was done once, undisturbed."""
    with adopting() as left_behind:
        made = Workshop(tmp_path_factory.mktemp("workshop"), toy_model, left_behind)
        made.commands = {name: made.train(name) for name in (SFT, RAPID, DAPO)}
        made.commands[EVALUATION] = made.evaluate("sft/model")
        made.seconds = {name: made.finish(made.commands[name], name) for name in made.commands}
        yield made
        made.end()
        assert not left_behind()


def limit_memory(job: psutil.Process) -> None:
    """Let a process have no more memory than it has now."""
    _, hard = job.rlimit(psutil.RLIMIT_AS)
    job.rlimit(psutil.RLIMIT_AS, (job.memory_info().vms, hard))


def exhaust_memory(job: psutil.Process) -> None:
    """Have Linux kill a process, in a group that may not have another page."""
    (GROUP / "memory.limit_in_bytes").write_text("4096")
    (GROUP / "cgroup.procs").write_text(str(job.pid))


def ended(workshop, name: str, out: str, moment: float, end) -> int:
    """Start a job and end it after so many seconds, if it has not ended; return its status."""
    command = workshop.start(workshop.commands[name], out)
    try:
        return command.wait(moment)
    except subprocess.TimeoutExpired:
        end(workshop.job() or psutil.Process(command.pid))
    return command.wait(PATIENCE)


def check_killed_jobs(workshop, name: str, end, seed: int) -> None:
    """End a job at random moments until it was ended often enough, then look at what it makes."""
    moments, out = random.Random(seed), f"{name}-{end.__name__}"
    expected, kills = workshop.result(name), 0
    for _ in range(5 * KILLS):
        if not ended(workshop, name, out, moments.uniform(0, workshop.seconds[name]), end):
            assert workshop.result(out) == expected
            shutil.rmtree(workshop.folder / out)
            workshop.seconds[name] *= 0.8  # the machine is faster than it was
            continue
        kills += 1
        assert not workshop.left_behind()
        folder = workshop.folder / out
        if (folder / MANIFEST).exists():  # it had ended but for its exit
            assert workshop.result(out) == expected
        assert not is_held(folder / CHECKPOINTS / "lock")
        if kills == KILLS:
            break
    workshop.finish(workshop.commands[name], out)
    assert kills == KILLS
    assert workshop.result(out) == expected
    assert not (workshop.folder / out / CHECKPOINTS).exists()


def injected(fault: str, seed: int, end, *names: str) -> list:
    """Return the cases of a fault: each job that is ended, how, and at which random moments."""
    marks = pytest.mark.fault(fault, times=KILLS)
    return [pytest.param(name, end, seed, marks=marks) for name in names]


BOTH = "evaluation, ended by SIGKILL or SIGTERM"
ENDED = [
    *injected("training, ended by SIGKILL", 1, psutil.Process.kill, RAPID, DAPO, SFT),
    *injected("training, ended by SIGTERM", 2, psutil.Process.terminate, RAPID, DAPO, SFT),
    *injected("training, no more memory (ulimit -v)", 3, limit_memory, RAPID),
    *injected(BOTH, 5, psutil.Process.kill, EVALUATION),
    *injected(BOTH, 5, psutil.Process.terminate, EVALUATION),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "end", "seed"), ENDED)
def test_a_job_that_was_ended_ends_as_one_that_was_not(workshop, name, end, seed):
    check_killed_jobs(workshop, name, end, seed)


@pytest.mark.slow
@pytest.mark.fault("training, killed by Linux for want of memory", times=KILLS)
def test_a_run_that_ran_out_of_memory_goes_on(workshop):
    try:
        GROUP.mkdir(exist_ok=True)
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        check_killed_jobs(workshop, RAPID, exhaust_memory, seed=4)
    finally:
        GROUP.rmdir()


@pytest.mark.slow
@pytest.mark.fault("training in two processes, ended by SIGKILL and by SIGTERM", times=2)
@pytest.mark.skipif(len(usable_cores()) < 2, reason="two processes want two cores")
def test_two_processes_go_on_together(workshop):
    command, out = workshop.train(RAPID, processes=2), "two"
    for attempt, (number, status) in enumerate([(signal.SIGKILL, -9), (signal.SIGTERM, 143)]):
        launcher = workshop.start(command, out, warm=False)
        workshop.wait_for_training(out, attempt, steps=True)
        launcher.send_signal(number)
        assert launcher.wait(PATIENCE) == status, workshop.said(out)[-4000:]
        assert not workshop.left_behind()
    workshop.finish(command, out, warm=False)
    assert re.search(r"SIGTERM: ended after step \d+ of 8\. The same command", workshop.said(out))
    assert "going on from here" in workshop.said(out)
    assert workshop.summary(out).interrupted == 2  # without the warm process there is one attempt
    workshop.finish(command, "two-undisturbed", warm=False)
    assert workshop.result(out) == workshop.result("two-undisturbed")


@pytest.mark.slow
@pytest.mark.fault("training, ended by SIGTERM between checkpoints", times=KILLS)
def test_what_is_told_to_end_saves_first(workshop, monkeypatch):
    """No step is lost, though the next checkpoint is far; and the time is that of the steps."""
    monkeypatch.setitem(workshop.environment, CHECKPOINT_VARIABLE, "1000")
    moments, out, name = random.Random(8), "told", SFT
    most = workshop.summary(name).runtime.total / (2 * KILLS)  # none ends by itself before
    for attempt in range(KILLS):
        command = workshop.start(workshop.commands[name], out)
        workshop.wait_for_training(out, attempt)
        time.sleep(moments.uniform(0, most))
        workshop.job().terminate()
        assert command.wait(PATIENCE) == 143, workshop.said(out)[-4000:]
    workshop.finish(workshop.commands[name], out)
    summary = workshop.summary(out)
    if summary.attempt == 1:  # else others had its core, and it was run again as a whole
        assert (summary.interrupted, summary.lost) == (KILLS, 0.0)
    assert workshop.result(out) == workshop.result(name)
    steps = [*read_jsonl(workshop.folder / out / "steps.jsonl", StepRecord)]
    seconds = [0.0, *(step.seconds for step in steps)]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= summary.runtime.total <= seconds[-1] + 1


@pytest.mark.slow
@pytest.mark.fault("a run started twice", times=4)
def test_the_second_command_is_refused_at_once(workshop):
    out, name = "twice", SFT
    first = workshop.start(workshop.commands[name], out)
    workshop.wait_for_training(out)
    job = workshop.job()
    job.suspend()  # it has not ended before the others are refused
    for warm in (True, True, True, False):
        assert workshop.start(workshop.commands[name], out, warm).wait(PATIENCE) == 2
    said = workshop.said(out)
    job.resume()
    assert said.count(f"rapid train: {out}: process {job.pid} of ") == 4, said[-4000:]
    assert first.wait(PATIENCE) == 0
    assert workshop.result(out) == workshop.result(name)
