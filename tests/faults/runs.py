"""Runs of a toy model whose completions are sometimes correct, which tests kill and resume."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from rapid.artifacts.demonstrations import Demonstration
from rapid.artifacts.files import sha256_file, write_jsonl
from rapid.artifacts.runs import CHECKPOINTS, PROGRESS, RunSummary, read_progress_file
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.prompts import render_prompt
from rapid.config.params import CHECKPOINT_VARIABLE, load
from rapid.config.specs import Run, build_evaluate_spec, build_train_spec
from rapid.training.resume import ATTEMPT, Attempt
from tests.conftest import load_default_values

ANSWER = "\\boxed{7}"
PROBLEMS, TESTS = 16, 4
PATIENCE = 300  # seconds until a test gives up
# Fields that differ from run to run; a report prints some of them.
TIMES = {
    "seconds", "sampling", "grading", "backpropagation", "sync", "runtime", "cpu", "waited",
    "stolen", "disturbed", "attempt", "interrupted", "lost", "peak_memory_mb", "commit",
}  # fmt: skip


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock."""
    if not lock.exists():
        return False
    try:
        with FileLock(lock).acquire(timeout=0):
            return False
    except Timeout:
        return True


def remove_times(document):
    """Return a document without the fields that differ from run to run."""
    if isinstance(document, dict):
        return {name: remove_times(value) for name, value in document.items() if name not in TIMES}
    return document


def read_results(folder: Path) -> dict:
    """Return all results of jobs in a folder, without the fields that differ from run to run."""
    results = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if CHECKPOINTS in file.parts:
            continue
        if file.suffix == ".jsonl":
            lines = file.read_text().splitlines()
            results[name] = [remove_times(json.loads(line)) for line in lines]
        elif file.name in ("summary.json", "evaluation.json"):
            results[name] = remove_times(json.loads(file.read_text()))
        elif file.is_file() and file.name not in ("manifest.json", "training_args.bin"):
            results[name] = sha256_file(file)
    return results


def make_problems() -> list[MathProblem]:
    return [
        MathProblem(unique_id=f"{n}", problem=f"What is {n} + {7 - n}?", answer="7")
        for n in range(PROBLEMS + TESTS)
    ]


def make_small_values(**sources: str) -> dict:
    """Return params.yaml with one benchmark and one model, and runs of a few steps.

    Args:
        sources: the source of the benchmark, as `math`, and that of the model, as `toy`.
    """
    values = load_default_values() | {"studies": None, "teacher": "toy"}
    sizes = {"train": PROBLEMS, "test": TESTS, "n_step": 4, "max_completion_length": 12}
    values["benchmarks"] = {"math": values["benchmarks"]["math"] | sizes}
    values["benchmarks"]["math"]["source"] = sources.get("math", "embedded")
    values["models"] = {"toy": {"source": sources["toy"]}}
    values["training"] |= {"group_size": 2, "micro_batch": 2, "learning_rate": 3e-4}
    values["sft"] |= {"learning_rate": 1e-2, "epochs": 25, "batch": 8, "samples": 2}
    values["rapid"]["H"] = 2
    values["experiment"]["benchmark"] = "math"
    tables = values["tables"]
    tables["main"] |= {"model": "toy", "algorithms": ["sft", "rapid-H2"], "seeds": [1]}
    tables["families"] |= {"benchmark": "math", "models": []}
    tables["staleness"]["H"] = [2]
    return values


class JobRunner:
    """Runs jobs in a folder, with a fork server or as commands of their own.

    Args:
        left_behind: a function that `tests.subprocesses.adopt_orphans` yields.
    """

    def __init__(self, folder: Path, toy_model: Path, left_behind: Callable):
        self.folder, self.params = folder, load(make_small_values(toy="toy"))
        problems = make_problems()
        write_jsonl(folder / "train.jsonl", problems[:PROBLEMS])
        write_jsonl(folder / "test.jsonl", problems[PROBLEMS:])
        prompts = [(problem.id, render_prompt("math", problem, False)) for problem in problems]
        demonstrations = [
            Demonstration(id=id, prompt=prompt, message=prompt, completion=ANSWER)
            for id, prompt in prompts
        ]
        write_jsonl(folder / "samples.jsonl", demonstrations[:PROBLEMS])
        shutil.copytree(toy_model, folder / "toy")
        socket = folder / "socket"
        self.environment = os.environ | {"RAPID_FORK_SERVER": str(socket), CHECKPOINT_VARIABLE: "0"}
        command = [sys.executable, "-m", "rapid", "fork-server", str(socket), str(os.getpid())]
        self._left_behind = left_behind
        self.fork_server = subprocess.Popen(command)
        while not socket.exists():
            assert self.fork_server.poll() is None
            time.sleep(0.05)

    def end(self) -> None:
        self.fork_server.send_signal(signal.SIGTERM)
        self.fork_server.wait()

    def build_train_command(self, algorithm: str, processes: int = 1) -> list[str]:
        """Return the command of a run; all runs but sft start from the model in sft/."""
        compute = self.params.compute.model_copy(update={"processes": processes})
        params = self.params.model_copy(update={"compute": compute})
        spec = build_train_spec(params, self._build_run(algorithm)).model_dump_json()
        model, data = ("toy", "samples") if algorithm == "sft" else ("sft/model", "train")
        return ["train", "--spec", spec, "--model", model, "--data", f"{data}.jsonl"]

    def build_evaluate_command(self, model: str) -> list[str]:
        """Return the command of an evaluation."""
        spec = build_evaluate_spec(self.params, self._build_run("base")).model_dump_json()
        return ["evaluate", "--spec", spec, "--model", model, "--data", "test.jsonl"]

    def _build_run(self, algorithm: str) -> Run:
        return Run(benchmark="math", model="toy", algorithm=algorithm, seed=1)

    def start(self, command: list[str], out: str, forked: bool = True) -> subprocess.Popen:
        """Start a command of `rapid`; its output goes to a log beside its folder."""
        environment = self.environment if forked else self.environment | {"RAPID_FORK_SERVER": ""}
        with open(self.folder / f"{out}.log", "a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "rapid", *command, "--out", out], cwd=self.folder,
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def finish(self, command: list[str], out: str, forked: bool = True) -> float:
        """Run a command to its end; return the seconds that it took."""
        start_time = time.monotonic()
        status = self.start(command, out, forked).wait(PATIENCE)
        assert status == 0, self.read_log(out)[-4000:]
        return time.monotonic() - start_time

    def read_log(self, out: str) -> str:
        """Return what the commands of a folder have printed."""
        return (self.folder / f"{out}.log").read_text()

    def wait_for_training(self, out: str, attempt: int = 0, steps: bool = False) -> None:
        """Wait until an attempt at a run has begun to train, or until it has taken a step."""
        deadline, checkpoints = time.monotonic() + PATIENCE, self.folder / out / CHECKPOINTS
        while not any(
            Attempt.model_validate_json(file.read_bytes()).interrupted == attempt
            and (not steps or read_progress_file(file.with_name(PROGRESS)))
            for file in checkpoints.glob(f"*/{ATTEMPT}")
        ):
            assert time.monotonic() < deadline, self.read_log(out)[-4000:]
            time.sleep(0.01)

    def read_summary(self, out: str) -> RunSummary:
        return RunSummary.model_validate_json((self.folder / out / "summary.json").read_bytes())

    def list_leftover_processes(self) -> list[psutil.Process]:
        """Return processes that jobs have left running, beside the fork server and its graders."""
        kept_pids: list[int] = []
        for child in self._children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                if not self._is_forked(child):
                    kept_pids += [p.pid for p in (child, *child.children(recursive=True))]
        return self._left_behind(self.fork_server.pid, *kept_pids)

    def find_job(self) -> psutil.Process | None:
        """Return the process that the fork server has forked for a command, if there is one."""
        return next(filter(self._is_forked, self._children()), None)

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self.fork_server.pid).children()

    def _is_forked(self, child: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return child.cmdline() == psutil.Process(self.fork_server.pid).cmdline()
        return False

    def read_results(self, out: str) -> dict:
        """Return all results of a job, without the fields that differ from run to run."""
        return read_results(self.folder / out)
