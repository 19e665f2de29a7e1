"""The benchmark's measurements: functions that parts.yaml names under `measure`.

Each yields the rows of an experiment. A row has labels (settings), and figures that summary.py
computes from samples. A sample is what was measured in one repetition.

All take the same arguments, also those that they do not use: the experiment, its subject (a
workload, the name of a benchmark, or a folder of tests), and the number of repetitions.
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
from performance.loops import TrainingLoop, run_busy_processes
from performance.memory import call_in_fresh_process, measure_training_memory
from performance.models import Workload, make_exercises
from performance.parts import Experiment, Setting
from performance.reference_times import measure_reference_times
from performance.rewards import GraderReward, RecordingReward, SolveRateReward
from performance.trainers import TRAINERS
from rapid.artifacts.code import ROOT
from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import Exercise
from rapid.config.params import load_files

Rows = Iterator[dict]
Samples = dict[str, list[dict]]  # by the name of a trainer
WARM_UP_PROBLEMS = 150  # graders check two completions of each before a measurement


def time_trainers(experiment: Experiment, workload: Workload, repeats: int) -> Rows:
    """Yield a row for each solve rate, with the times of the trainers.

    The last trainer takes turns with each of the others. At most two are in memory at a time.
    """
    setting, build_reward = experiment.setting, SolveRateReward
    _check_sampler(setting)
    if experiment.solve_rates == (None,):  # the real grader
        if reason := BENCHMARKS[workload.benchmark].explain_unavailable():
            raise BadInput(reason)
        graders = max(1, min(setting.grading_workers, setting.cores))
        build_reward = partial(build_grader_reward, workload, graders)
    *other_names, last_name = experiment.trainers
    turns: dict[float | None, list[Samples]] = {rate: [] for rate in experiment.solve_rates}
    for names in [(name, last_name) for name in other_names] or [(last_name,)]:
        with ExitStack() as stack:
            loops = {
                name: stack.enter_context(
                    TrainingLoop(setting, partial(TRAINERS[name], workload), build_reward)
                )
                for name in names
            }
            for loop in loops.values():
                loop.run(setting.H)  # to warm up
            stack.enter_context(run_busy_processes(setting.busy_processes))
            for rate in experiment.solve_rates:
                samples: Samples = {name: [] for name in names}
                for _ in range(repeats):
                    for name, loop in loops.items():
                        samples[name].append(loop.run(experiment.batches * setting.H, rate))
                turns[rate].append(samples)
    for rate, samples_in_turns in turns.items():
        labels = _label_row(experiment, workload, rate)
        yield labels | summary.summarize_timing(samples_in_turns)


def time_beside_references(experiment: Experiment, workload: Workload, repeats: int) -> Rows:
    """Yield the rows of `time_trainers`, with the times of `measure_reference_times`."""
    _check_sampler(experiment.setting)
    reference_times = call_in_fresh_process(measure_reference_times, workload, experiment.setting)
    for row in time_trainers(experiment, workload, repeats):
        yield row | {
            name: summary.round_number(seconds) for name, seconds in reference_times.items()
        }


def _check_sampler(setting: Setting) -> None:
    """Raise BadInput if vLLM is needed and not installed."""
    if setting.vllm and not find_spec("vllm"):
        raise BadInput("vLLM is not installed")


def build_grader_reward(workload: Workload, graders: int = 1) -> RecordingReward:
    """Return a reward function with the real grader, which ends with this process.

    The grader has the time limit of params.yaml. It is warmed up as if earlier runs of the
    pipeline had used it, because V8 (node's JavaScript engine) compiles functions of the
    WebAssembly Lean during the first hundred verdicts.

    Args:
        graders: number of graders, each of which grades one completion at a time.
    """
    benchmark, problems = BENCHMARKS[workload.benchmark], [*workload.problems]
    timeout = load_files(ROOT / "params.yaml").benchmarks[benchmark.name].timeout
    grader = benchmark.build_grader(timeout, graders).__enter__()
    benchmark.warm_up(grader, problems)
    # Exercises with problems on which no loop trains.
    exercises = make_exercises(benchmark.name, len(problems) + WARM_UP_PROBLEMS)[len(problems) :]
    unseen_problems = [exercise.problem for exercise in exercises]
    correct = [exercise.correct for exercise in exercises]
    mistaken = [exercise.mistakes[0] for exercise in exercises]
    with ThreadPoolExecutor(graders) as threads:
        for completions in (correct, mistaken):
            list(threads.map(grader.grade, unseen_problems, completions))
    return GraderReward(grader, problems)


def _label_row(experiment: Experiment, workload: Workload, rate: float | None) -> dict:
    labels = {"model": workload.title_with_size, "workload": workload.name, "solve_rate": rate}
    if rate is None:
        labels["benchmark"] = workload.benchmark
    labels |= {"N_inference": experiment.setting.inference_batch, **asdict(experiment.setting)}
    return labels | ({"varied": experiment.varied} if experiment.varied else {})


def measure_memory(experiment: Experiment, workload: Workload, repeats: int) -> Rows:
    """Yield one row with the peak memory of training, each sample from a fresh process."""
    [rate] = experiment.solve_rates
    samples: dict[str, list[dict]] = {name: [] for name in experiment.trainers}
    for _ in range(repeats):
        for name in samples:
            arguments = (name, workload, experiment.setting, experiment.batches, rate)
            samples[name].append(call_in_fresh_process(measure_training_memory, *arguments))
    labels = _label_row(experiment, workload, rate)
    yield labels | summary.summarize_memory(samples)


def time_verdicts(experiment: Experiment, benchmark: str, repeats: int) -> Rows:
    """Yield a row for correct completions and one for mistaken ones, with the times of verdicts."""
    exercises = make_exercises(benchmark, experiment.completions)
    samples = [grade_exercises(benchmark, exercises) for _ in range(repeats)]
    for kind in samples[0]:
        noun = BENCHMARKS[benchmark].completion_noun
        labels = {"benchmark": benchmark, "completions": noun, "kind": kind}
        yield labels | summary.summarize_verdicts([sample[kind] for sample in samples])


def grade_exercises(benchmark: str, exercises: list[Exercise]) -> dict[str, dict]:
    """Grade two completions of each exercise, one after the other, and time the verdicts.

    An exercise is a generated problem with a correct completion and mistaken ones, of which the
    first is graded. All problems are prepared before the first verdict, as most problems are in a
    run. No verdict comes from a cache, because the grader is new and all completions differ.

    Returns:
        For `correct` and `mistaken` completions: the `latencies` of verdicts in seconds, and the
        number of completions that were `rewarded`.
    """
    task = BENCHMARKS[benchmark]
    samples = {kind: {"latencies": [], "rewarded": 0} for kind in ("correct", "mistaken")}
    with task.build_grader(task.default_timeout) as grader:
        for exercise in exercises:
            grader.prepare(exercise.problem)
        grader.grade(exercises[0].problem, "trivial")  # a first verdict, which starts processes
        for exercise in exercises:
            completions = (exercise.correct, exercise.mistakes[0])
            for sample, completion in zip(samples.values(), completions, strict=True):
                began = time.perf_counter()
                verdict = grader.grade(exercise.problem, completion)
                sample["latencies"].append(time.perf_counter() - began)
                sample["rewarded"] += bool(verdict.reward)
    return samples


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
