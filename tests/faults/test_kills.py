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
from tests.faults.runs import PATIENCE, JobRunner, is_held
from tests.subprocesses import adopt_orphans

KILLS = 8
RAPID, DAPO, SFT, EVALUATION = "rapid-H2,snapshots=2", "dapo-H2", "sft", "evaluation"


@pytest.fixture(scope="module")
def job_runner(toy_model, tmp_path_factory):
    """A folder in which each job was run once without a fault."""
    with adopt_orphans() as left_behind:
        job_runner = JobRunner(tmp_path_factory.mktemp("job_runner"), toy_model, left_behind)
        job_runner.commands = {
            name: job_runner.build_train_command(name) for name in (SFT, RAPID, DAPO)
        }
        job_runner.commands[EVALUATION] = job_runner.build_evaluate_command("sft/model")
        job_runner.seconds = {
            name: job_runner.finish(job_runner.commands[name], name) for name in job_runner.commands
        }
        yield job_runner
        job_runner.end()
        assert not left_behind()


def limit_memory(job: psutil.Process) -> None:
    """Limit the memory of a process to its present size."""
    _, hard = job.rlimit(psutil.RLIMIT_AS)
    job.rlimit(psutil.RLIMIT_AS, (job.memory_info().vms, hard))


def end_job_after(job_runner, name: str, out: str, moment: float, end_process) -> int:
    """Start a job and end it after so many seconds, if it has not ended; return its status."""
    command = job_runner.start(job_runner.commands[name], out)
    try:
        return command.wait(moment)
    except subprocess.TimeoutExpired:
        end_process(job_runner.find_job() or psutil.Process(command.pid))
    return command.wait(PATIENCE)


def make_cases(fault: str, seed: int, end_process, *names: str) -> list:
    """Return the cases of a fault: each job that is ended, how, and at which random moments."""
    marks = pytest.mark.fault(fault, times=KILLS)
    return [pytest.param(name, end_process, seed, marks=marks) for name in names]


EITHER_SIGNAL = "killed jobs: evaluation by SIGKILL or SIGTERM"
KILLED = [
    *make_cases("killed jobs: training by SIGKILL", 1, psutil.Process.kill, RAPID, DAPO, SFT),
    *make_cases("killed jobs: training by SIGTERM", 2, psutil.Process.terminate, RAPID, DAPO, SFT),
    *make_cases("killed jobs: training out of memory (ulimit -v)", 3, limit_memory, RAPID),
    *make_cases(EITHER_SIGNAL, 5, psutil.Process.kill, EVALUATION),
    *make_cases(EITHER_SIGNAL, 5, psutil.Process.terminate, EVALUATION),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "end_process", "seed"), KILLED)
def test_a_killed_and_resumed_job_has_the_results_of_an_undisturbed_one(
    job_runner, name, end_process, seed
):
    """The job is killed at random moments, and started again after each kill."""
    moments, out = random.Random(seed), f"{name}-{end_process.__name__}"
    expected, kills = job_runner.read_results(name), 0
    for _ in range(5 * KILLS):
        if not end_job_after(
            job_runner, name, out, moments.uniform(0, job_runner.seconds[name]), end_process
        ):
            assert job_runner.read_results(out) == expected
            shutil.rmtree(job_runner.folder / out)
            job_runner.seconds[name] *= 0.8  # the machine has become faster
            continue
        kills += 1
        assert not job_runner.list_leftover_processes()
        folder = job_runner.folder / out
        if (folder / MANIFEST).exists():  # the job had ended, and only had to exit
            assert job_runner.read_results(out) == expected
        assert not is_held(folder / CHECKPOINTS / "lock")
        if kills == KILLS:
            break
    job_runner.finish(job_runner.commands[name], out)
    assert kills == KILLS
    assert job_runner.read_results(out) == expected
    assert not (job_runner.folder / out / CHECKPOINTS).exists()


@pytest.mark.slow
@pytest.mark.fault("killed jobs: training in two processes", times=2)
@pytest.mark.skipif(len(list_usable_cores()) < 2, reason="two processes want two cores")
def test_a_killed_run_of_two_processes_is_resumed(job_runner):
    command, out = job_runner.build_train_command(RAPID, processes=2), "two"
    for attempt, (signal_number, status) in enumerate(
        [(signal.SIGKILL, -9), (signal.SIGTERM, 143)]
    ):
        launcher = job_runner.start(command, out, forked=False)
        job_runner.wait_for_training(out, attempt, steps=True)
        launcher.send_signal(signal_number)
        assert launcher.wait(PATIENCE) == status, job_runner.read_log(out)[-4000:]
        assert not job_runner.list_leftover_processes()
    job_runner.finish(command, out, forked=False)
    assert re.search(
        r"SIGTERM: ended after step \d+ of 8\. To resume, run the same command",
        job_runner.read_log(out),
    )
    assert "resuming from here" in job_runner.read_log(out)
    assert (
        job_runner.read_summary(out).interrupted == 2
    )  # without the fork server there is one attempt
    job_runner.finish(command, "two-undisturbed", forked=False)
    assert job_runner.read_results(out) == job_runner.read_results("two-undisturbed")


@pytest.mark.slow
@pytest.mark.fault("killed jobs: training by SIGTERM between checkpoints", times=KILLS)
def test_a_run_saves_a_checkpoint_before_sigterm_ends_it(job_runner, monkeypatch):
    """No step is lost although no checkpoint is due, and the run's time is that of its steps."""
    monkeypatch.setitem(job_runner.environment, CHECKPOINT_VARIABLE, "1000")
    moments, out, name = random.Random(8), "told", SFT
    # No run ends by itself before it is killed.
    longest_wait = job_runner.read_summary(name).runtime.total / (2 * KILLS)
    for attempt in range(KILLS):
        command = job_runner.start(job_runner.commands[name], out)
        job_runner.wait_for_training(out, attempt)
        time.sleep(moments.uniform(0, longest_wait))
        job_runner.find_job().terminate()
        assert command.wait(PATIENCE) == 143, job_runner.read_log(out)[-4000:]
    job_runner.finish(job_runner.commands[name], out)
    summary = job_runner.read_summary(out)
    # A run that other processes have disturbed is run again from the start.
    if summary.attempt == 1:
        assert (summary.interrupted, summary.lost) == (KILLS, 0.0)
    assert job_runner.read_results(out) == job_runner.read_results(name)
    steps = [*read_jsonl(job_runner.folder / out / "steps.jsonl", StepRecord)]
    seconds = [0.0, *(step.seconds for step in steps)]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= summary.runtime.total <= seconds[-1] + 1


@pytest.mark.slow
@pytest.mark.fault("workflow: same run started twice", times=4)
def test_a_second_command_for_a_run_is_refused_at_once(job_runner):
    out, name = "twice", SFT
    first = job_runner.start(job_runner.commands[name], out)
    job_runner.wait_for_training(out)
    job = job_runner.find_job()
    job.suspend()  # so that it is still running when the others are refused
    for forked in (True, True, True, False):
        assert job_runner.start(job_runner.commands[name], out, forked).wait(PATIENCE) == 2
    output = job_runner.read_log(out)
    job.resume()
    assert output.count(f"rapid train: {out}: in use by process {job.pid} on ") == 4, output[-4000:]
    assert first.wait(PATIENCE) == 0
    assert job_runner.read_results(out) == job_runner.read_results(name)
