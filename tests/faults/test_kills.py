"""The same command resumes a killed job, with the results of an undisturbed one."""

import random
import re
import shutil
import signal
import subprocess
import time

import psutil
import pytest

from rapid.artifacts.files import read_jsonl
from rapid.artifacts.manifests import MANIFEST
from rapid.artifacts.runs import CHECKPOINTS, StepRecord
from rapid.config.params import CHECKPOINT_VARIABLE
from rapid.resources.leases import list_usable_cores
from tests.faults.runs import PATIENCE, Workshop, is_held
from tests.subprocesses import adopting

KILLS = 8
RAPID, DAPO, SFT, EVALUATION = "rapid-H2,snapshots=2", "dapo-H2", "sft", "evaluation"


@pytest.fixture(scope="module")
def workshop(toy_model, tmp_path_factory):
    """A workshop where each job was done once, undisturbed."""
    with adopting() as left_behind:
        shop = Workshop(tmp_path_factory.mktemp("workshop"), toy_model, left_behind)
        shop.commands = {name: shop.train(name) for name in (SFT, RAPID, DAPO)}
        shop.commands[EVALUATION] = shop.evaluate("sft/model")
        shop.seconds = {name: shop.finish(shop.commands[name], name) for name in shop.commands}
        yield shop
        shop.end()
        assert not left_behind()


def limit_memory(job: psutil.Process) -> None:
    """Let a process have no more memory than it has now."""
    _, hard = job.rlimit(psutil.RLIMIT_AS)
    job.rlimit(psutil.RLIMIT_AS, (job.memory_info().vms, hard))


def end_after(workshop, name: str, out: str, moment: float, end) -> int:
    """Start a job and end it after so many seconds, if it has not ended; return its status."""
    command = workshop.start(workshop.commands[name], out)
    try:
        return command.wait(moment)
    except subprocess.TimeoutExpired:
        end(workshop.job() or psutil.Process(command.pid))
    return command.wait(PATIENCE)


def fault_cases(fault: str, seed: int, end, *names: str) -> list:
    """Return the cases of a fault: each job that is ended, how, and at which random moments."""
    marks = pytest.mark.fault(fault, times=KILLS)
    return [pytest.param(name, end, seed, marks=marks) for name in names]


EITHER_SIGNAL = "killed jobs: evaluation by SIGKILL or SIGTERM"
KILLED = [
    *fault_cases("killed jobs: training by SIGKILL", 1, psutil.Process.kill, RAPID, DAPO, SFT),
    *fault_cases("killed jobs: training by SIGTERM", 2, psutil.Process.terminate, RAPID, DAPO, SFT),
    *fault_cases("killed jobs: training out of memory (ulimit -v)", 3, limit_memory, RAPID),
    *fault_cases(EITHER_SIGNAL, 5, psutil.Process.kill, EVALUATION),
    *fault_cases(EITHER_SIGNAL, 5, psutil.Process.terminate, EVALUATION),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "end", "seed"), KILLED)
def test_a_killed_job_has_the_results_of_an_undisturbed_one(workshop, name, end, seed):
    """It is killed at random moments, and started again each time."""
    moments, out = random.Random(seed), f"{name}-{end.__name__}"
    expected, kills = workshop.results(name), 0
    for _ in range(5 * KILLS):
        if not end_after(workshop, name, out, moments.uniform(0, workshop.seconds[name]), end):
            assert workshop.results(out) == expected
            shutil.rmtree(workshop.folder / out)
            workshop.seconds[name] *= 0.8  # the machine is faster than it was
            continue
        kills += 1
        assert not workshop.left_behind()
        folder = workshop.folder / out
        if (folder / MANIFEST).exists():  # it had ended but for its exit
            assert workshop.results(out) == expected
        assert not is_held(folder / CHECKPOINTS / "lock")
        if kills == KILLS:
            break
    workshop.finish(workshop.commands[name], out)
    assert kills == KILLS
    assert workshop.results(out) == expected
    assert not (workshop.folder / out / CHECKPOINTS).exists()


@pytest.mark.slow
@pytest.mark.fault("killed jobs: training in two processes", times=2)
@pytest.mark.skipif(len(list_usable_cores()) < 2, reason="two processes want two cores")
def test_a_run_of_two_processes_is_resumed(workshop):
    command, out = workshop.train(RAPID, processes=2), "two"
    for attempt, (number, status) in enumerate([(signal.SIGKILL, -9), (signal.SIGTERM, 143)]):
        launcher = workshop.start(command, out, forked=False)
        workshop.wait_for_training(out, attempt, steps=True)
        launcher.send_signal(number)
        assert launcher.wait(PATIENCE) == status, workshop.log(out)[-4000:]
        assert not workshop.left_behind()
    workshop.finish(command, out, forked=False)
    assert re.search(
        r"SIGTERM: ended after step \d+ of 8\. To resume, run the same command", workshop.log(out)
    )
    assert "resuming from here" in workshop.log(out)
    assert workshop.summary(out).interrupted == 2  # without the fork server there is one attempt
    workshop.finish(command, "two-undisturbed", forked=False)
    assert workshop.results(out) == workshop.results("two-undisturbed")


@pytest.mark.slow
@pytest.mark.fault("killed jobs: training by SIGTERM between checkpoints", times=KILLS)
def test_a_run_saves_before_sigterm_ends_it(workshop, monkeypatch):
    """No step is lost, though the next checkpoint is far; and the time is that of the steps."""
    monkeypatch.setitem(workshop.environment, CHECKPOINT_VARIABLE, "1000")
    moments, out, name = random.Random(8), "told", SFT
    most = workshop.summary(name).runtime.total / (2 * KILLS)  # none ends by itself before
    for attempt in range(KILLS):
        command = workshop.start(workshop.commands[name], out)
        workshop.wait_for_training(out, attempt)
        time.sleep(moments.uniform(0, most))
        workshop.job().terminate()
        assert command.wait(PATIENCE) == 143, workshop.log(out)[-4000:]
    workshop.finish(workshop.commands[name], out)
    summary = workshop.summary(out)
    if summary.attempt == 1:  # else others had its core, and it was run again as a whole
        assert (summary.interrupted, summary.lost) == (KILLS, 0.0)
    assert workshop.results(out) == workshop.results(name)
    steps = [*read_jsonl(workshop.folder / out / "steps.jsonl", StepRecord)]
    seconds = [0.0, *(step.seconds for step in steps)]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= summary.runtime.total <= seconds[-1] + 1


@pytest.mark.slow
@pytest.mark.fault("workflow: same run started twice", times=4)
def test_a_second_command_for_a_run_is_refused_at_once(workshop):
    out, name = "twice", SFT
    first = workshop.start(workshop.commands[name], out)
    workshop.wait_for_training(out)
    job = workshop.job()
    job.suspend()  # it has not ended before the others are refused
    for forked in (True, True, True, False):
        assert workshop.start(workshop.commands[name], out, forked).wait(PATIENCE) == 2
    output = workshop.log(out)
    job.resume()
    assert output.count(f"rapid train: {out}: in use by process {job.pid} on ") == 4, output[-4000:]
    assert first.wait(PATIENCE) == 0
    assert workshop.results(out) == workshop.results(name)
