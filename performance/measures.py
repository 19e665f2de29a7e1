"""The measurements of the benchmark.

The functions that parts.yaml names under `measure` yield the rows of an experiment. A row has
labels and figures; summary.py computes the figures from samples.
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from performance import summary
from performance.floors import time_floors
from performance.loops import Loop
from performance.memory import call_in_fresh_process, train
from performance.models import Workload, make_exercises
from performance.parts import Experiment, Setting
from performance.rewards import Counted, Graded, SolveRate
from performance.trainers import SIDES
from rapid.artifacts.code import ROOT
from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import Exercise
from rapid.config.params import load_files

Rows = Iterator[dict]
WARM_UP = 150  # other problems, of which graders check two completions each before a measurement


def time_in_turns(experiment: Experiment, workload: Workload, repeats: int) -> Rows:
    """Yield a row for each solve rate, with the seconds of training loops that take turns."""
    setting, graded = experiment.setting, experiment.rates == (None,)
    _check_sampler(setting)
    graders = max(1, min(setting.grading_workers, setting.cores))
    reward = partial(load_grader, workload, graders) if graded else SolveRate
    with ExitStack() as stack:
        loops = {
            side: stack.enter_context(Loop(setting, partial(SIDES[side], workload), reward))
            for side in experiment.sides
        }
        for loop in loops.values():
            loop.run(setting.H)  # to warm up
        for rate in experiment.rates:
            samples: dict[str, list[dict]] = {side: [] for side in loops}
            for _ in range(repeats):
                for side, loop in loops.items():
                    samples[side].append(loop.run(experiment.batches * setting.H, rate))
            labels = _label_row(experiment, workload, rate)
            yield labels | summary.summarize_timing(samples)


def time_beside_floors(experiment: Experiment, workload: Workload, repeats: int) -> Rows:
    """Yield the rows of `time_in_turns`, with the times of `performance.floors`."""
    _check_sampler(experiment.setting)
    alone = call_in_fresh_process(time_floors, workload, experiment.setting)
    for row in time_in_turns(experiment, workload, repeats):
        yield row | {name: summary.round_number(seconds) for name, seconds in alone.items()}


def _check_sampler(setting: Setting) -> None:
    """Raise BadInput if vLLM is to sample and is not installed."""
    if setting.vllm and not find_spec("vllm"):
        raise BadInput("vLLM is not installed")


def load_grader(workload: Workload, workers: int = 1) -> Counted:
    """Return a reward function with the real grader, which ends with the loop's process.

    The grader has the time limit of params.yaml, and is warmed up as in a run of the pipeline after
    other runs: V8 compiles functions of Lean in the first hundred verdicts.

    Args:
        workers: number of graders: verdicts at a time.
    """
    task, problems = BENCHMARKS[workload.benchmark], [*workload.problems]
    timeout = load_files(ROOT / "params.yaml").benchmarks[task.name].timeout
    grader = task.grader(timeout, workers).__enter__()
    task.rehearse(grader, problems)
    others = make_exercises(task.name, len(problems) + WARM_UP)[len(problems) :]
    with ThreadPoolExecutor(workers) as threads:
        for texts in [other.correct for other in others], [other.mistakes[0] for other in others]:
            [*threads.map(grader.grade, [other.problem for other in others], texts)]
    return Graded(grader, problems)


def _label_row(experiment: Experiment, workload: Workload, rate: float | None) -> dict:
    labels = {"model": workload.described, "workload": workload.name, "rate": rate}
    if rate is None:
        labels["benchmark"] = workload.benchmark
    labels |= {"N_inference": experiment.setting.inference_batch, **asdict(experiment.setting)}
    return labels | ({"varied": experiment.varied} if experiment.varied else {})


def measure_memory(experiment: Experiment, workload: Workload, repeats: int) -> Rows:
    """Yield one row with the peak memory of training, each sample from a fresh process."""
    [rate] = experiment.rates
    samples: dict[str, list[dict]] = {side: [] for side in experiment.sides}
    for _ in range(repeats):
        for side in samples:
            arguments = (side, workload, experiment.setting, experiment.batches, rate)
            samples[side].append(call_in_fresh_process(train, *arguments))
    labels = _label_row(experiment, workload, rate)
    yield labels | summary.summarize_memory(samples)


def time_verdicts(experiment: Experiment, benchmark: str, repeats: int) -> Rows:
    """Yield a row for correct completions and one for mistaken ones, with the times of verdicts."""
    exercises = make_exercises(benchmark, experiment.completions)
    samples = [grade_exercises(benchmark, exercises) for _ in range(repeats)]
    for kind in samples[0]:
        verdicts = [sample[kind] for sample in samples]
        labels = {"benchmark": benchmark, "graded": BENCHMARKS[benchmark].graded, "kind": kind}
        yield labels | summary.summarize_verdicts(verdicts)


def grade_exercises(benchmark: str, exercises: list[Exercise]) -> dict[str, dict]:
    """Grade two completions of each exercise, one after the other, and time the verdicts.

    The completions are the correct one and the first mistake. All problems are prepared before the
    first verdict, as most problems are in a run. The grader is new and each completion different,
    so that no verdict comes from a cache.

    Returns:
        For `correct` and `mistaken` completions the `latencies` of verdicts in seconds, and how
        many completions were `rewarded`.
    """
    task = BENCHMARKS[benchmark]
    kinds = {kind: {"latencies": [], "rewarded": 0} for kind in ("correct", "mistaken")}
    with task.grader(task.default_timeout) as grader:
        for exercise in exercises:
            grader.prepare(exercise.problem)
        grader.grade(exercises[0].problem, "trivial")  # starts processes that start late
        for exercise in exercises:
            completions = (exercise.correct, exercise.mistakes[0])
            for counted, completion in zip(kinds.values(), completions, strict=True):
                began = time.perf_counter()
                verdict = grader.grade(exercise.problem, completion)
                counted["latencies"].append(time.perf_counter() - began)
                counted["rewarded"] += bool(verdict.reward)
    return kinds


def run_tests(experiment: Experiment, folder: str, repeats: int) -> Rows:
    """Run the tests that need a GPU, and yield a row with the outcome of each."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", folder]
        command += ["-p", "no:cacheprovider", f"--junitxml={path}"]
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        pytest = subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False)
        if not path.exists():
            raise RuntimeError(f"pytest ended with status {pytest.returncode}")
        for case in ET.parse(path).iter("testcase"):
            yield summary.summarize_test(case)
