"""The parts of the benchmark, (a) to (n): experiments that make rows for a table."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from performance import floor, graders, memory, operators, summary
from performance.beside_trl import LEARNING, Float64, compare
from performance.loops import CORES, Loop
from performance.models import UNTRAINED, Workload, exercises
from performance.rewards import TIMEOUT, Counted, Graded, SolveRate
from performance.trainers import SIDES, PaddedPerPass, Setting, rapid, stock
from rapid.artifacts.code import ROOT
from rapid.benchmarks import BENCHMARKS
from rapid.cost.shapes import from_config

RATES = (0.0, 0.1, 0.3, 0.5, 1.0)
SOME_RATES = (0.0, 0.3, 1.0)  # of a real model, which takes minutes for each
USUAL_RATE = 0.3  # where the solve rate is not what is varied
WAIT = 0.005  # seconds that a verdict takes, where grading is beside sampling
SAVINGS = ("skip_zero_groups", "pack", "reuse_logp", "share_prefill")
ALL = dict.fromkeys(SAVINGS, True)
GRADING = {"grading_workers": 4}
PLAIN = dict.fromkeys(SAVINGS, False) | {"grading_workers": 0}

Rows = Iterator[dict]  # of labels, figures, and the samples that the figures are of


class Experiment(NamedTuple):
    """Something to measure."""

    name: str
    run: Callable[[], Rows]


@dataclass(frozen=True)
class Plan:
    """How often to measure, and how much."""

    repeats: int
    quick: bool

    def usual(self, workload: Workload) -> Setting:
        """Return the setting of a model where it is not what is varied."""
        if workload.name == "tiny":
            return Setting(length=40 if self.quick else 80)
        return Setting(n_step=4, micro_batch=4, length=16 if self.quick else 48)

    def batches(self, workload: Workload, setting: Setting) -> int:
        """Return the inference batches of a sample: enough to last a second."""
        enough = (64 if self.quick else 128) * 80 // max(80, setting.length)
        return max(1, enough // setting.inference_batch) if workload.name == "tiny" else 1


def timing(
    plan: Plan,
    workload: Workload,
    name: str,
    setting: Setting,
    rates: tuple[float | None, ...],
    sides: dict[str, Callable] = SIDES,
    reward: Callable[[], Counted] = SolveRate,
    more: Callable[..., dict] | None = None,
    **labels,
) -> Experiment:
    """Return an experiment of training loops that take turns, with a row for each solve rate.

    Args:
        rates: solve rates; None where the reward has none to be set.
        sides: name -> function that builds a trainer; the one to compare with comes first.
        reward: makes a loop's reward.
        more: of a trainer and a setting: measures more of what was sampled last.
        labels: of all rows.
    """
    # Of a real model at most three samples, each of which takes minutes.
    repeats = plan.repeats if workload.name == "tiny" else min(3, plan.repeats)
    steps = plan.batches(workload, setting) * setting.H
    labels |= _labels(workload, setting)

    def run() -> Rows:
        with ExitStack() as stack:
            loops = {
                side: stack.enter_context(Loop(setting, partial(build, workload), reward))
                for side, build in sides.items()
            }
            for loop in loops.values():
                loop.run(setting.H)  # warms it up
            for rate in rates:
                samples = {side: [] for side in loops}
                for loop in loops.values():
                    loop.call(_set_rate, rate)
                for _ in range(repeats):
                    for side, loop in loops.items():
                        sample = loop.run(steps)
                        samples[side].append(sample | (loop.call(more, setting) if more else {}))
                yield labels | {"rate": rate} | summary.timing(samples) | {"samples": samples}

    return Experiment(f"{workload.name}, {name}", run)


def _labels(workload: Workload, setting: Setting) -> dict:
    """Return the labels of a row."""
    batch = {"N_inference": setting.inference_batch}
    return {"model": workload.described, "workload": workload.name, **asdict(setting), **batch}


def _set_rate(trainer, rate: float | None) -> None:
    trainer.reward_funcs[0].rate = rate


def against_stock(plan: Plan, workload: Workload) -> Iterator[Experiment]:
    """Yield part (a): RapidTrainer against TRL's trainer."""
    usual = plan.usual(workload)
    rates = (0.1, 1.0) if plan.quick else RATES if workload.name == "tiny" else SOME_RATES
    yield timing(plan, workload, "solve rates", usual, rates)
    if workload.name == "tiny" and not plan.quick:
        whole = replace(usual, micro_batch=usual.n_step)
        yield timing(plan, workload, "a pass for each step", whole, (0.1,))
        small = replace(usual, n_step=4, micro_batch=4)
        yield timing(plan, workload, "the pipeline's N_step", small, (0.1,))
    if workload.name == "tiny":
        yield timing(plan, workload, "graded", usual, (None,), reward=partial(graded, workload))


def graded(workload: Workload) -> Counted:
    """Return the reward of the real grader, which ends with the loop's process."""
    grader = BENCHMARKS["mbpp_plus"].grader(TIMEOUT).__enter__()
    return Graded(grader, workload.problems)


def phases(plan: Plan, workload: Workload) -> Iterator[Experiment]:
    """Yield part (b): where the time goes, for every H and N_step."""
    grid = [(h, n) for n in (4, 16, 32, 64) for h in (1, 2, 4, 8, 16)]
    for h, n_step in [(1, 4), (4, 16)] if plan.quick else grid:
        setting = replace(plan.usual(workload), H=h, n_step=n_step, micro_batch=min(8, n_step))
        name = f"H={h}, N_step={n_step}"
        yield timing(plan, workload, name, setting, (USUAL_RATE,), {"rapid": rapid})


def savings(plan: Plan, workload: Workload) -> Iterator[Experiment]:
    """Yield part (c): each saving, and all of them, over the plain loop."""
    every = {name: ({name: True}, 0.0) for name in SAVINGS}
    every["all of these"] = (ALL, 0.0)
    every["grading_workers"] = (GRADING, WAIT)
    every["all, and grading_workers"] = (ALL | GRADING, WAIT)
    for name in ("pack", "all, and grading_workers") if plan.quick else every:
        switches, wait = every[name]
        sides = {"plain": partial(rapid, **PLAIN), "saved": partial(rapid, **PLAIN | switches)}
        reward = partial(SolveRate, wait=wait)
        labels = {"saving": name, "wait_ms": 1000 * wait}
        yield timing(plan, workload, name, plan.usual(workload), (0.1,), sides, reward, **labels)


def sizes(plan: Plan, workload: Workload) -> Iterator[Experiment]:
    """Yield part (d): the cost against completion length and against N_inference, at H=4."""
    usual = plan.usual(workload)
    for length in (16, 32) if plan.quick else (16, 32, 64, 128, 256, 512):
        setting = replace(usual, length=length, fixed_length=True)
        name = f"length {length}"
        yield timing(plan, workload, name, setting, (USUAL_RATE,), varied="length")
    for n_step in (4, 16) if plan.quick else (4, 8, 16, 32, 64, 128):
        setting = replace(usual, n_step=n_step, micro_batch=min(8, n_step))
        name = f"N_inference {setting.inference_batch}"
        yield timing(plan, workload, name, setting, (USUAL_RATE,), varied="N_inference")


def distances(plan: Plan, workload: Workload) -> Iterator[Experiment]:
    """Yield part (e): the distance to the floor."""
    rates = (0.1, 0.5) if workload.name == "tiny" and not plan.quick else (0.1,)
    setting, sides = plan.usual(workload), {"rapid": rapid}
    yield timing(plan, workload, "floor", setting, rates, sides, more=floor.measure)


def peaks(plan: Plan, workload: Workload) -> Rows:
    """Yield part (f): peak memory."""
    setting = plan.usual(workload)
    batches, most = (2, 3) if workload.name == "tiny" else (1, 2)
    samples = {side: [] for side in SIDES}
    for _ in range(1 if plan.quick else min(plan.repeats, most)):
        for side in SIDES:
            samples[side].append(memory.measure(side, workload, setting, batches))
    labels = _labels(workload, setting) | {"rate": memory.RATE}
    yield labels | summary.memory(samples) | {"samples": samples}


def verdicts(plan: Plan, name: str) -> Rows:
    """Yield part (g): how long a verdict of a benchmark's grader takes."""
    some = exercises(name, 10 if plan.quick else 100)
    samples = [graders.sample(name, some) for _ in range(plan.repeats)]
    for kind in samples[0]:
        verdicts = [sample[kind] for sample in samples]
        labels = {"benchmark": name, "graded": BENCHMARKS[name].graded, "kind": kind}
        yield labels | summary.verdicts(verdicts) | {"samples": verdicts}


def growth(plan: Plan, workload: Workload) -> Iterator[Experiment]:
    """Yield part (h): the cost against the model's width and the number of processes, at H=4."""
    usual, sides = plan.usual(workload), {"rapid": rapid}
    setting = replace(usual, length=32, fixed_length=True)
    shape = replace(from_config(workload.model / "config.json"), layers=2)
    for width in (64, 128) if plan.quick else (64, 128, 256, 512):
        heads = width // shape.head_dim
        sizes = {"hidden": width, "intermediate": 3 * width, "heads": heads, "kv_heads": heads}
        wide = replace(workload, shape=replace(shape, **sizes), title="untrained")
        labels = {"width": width, "parameters": wide.parameters, "varied": "width"}
        yield timing(plan, wide, f"width {width}", setting, (USUAL_RATE,), sides, **labels)
    for count in range(1, max(1, len(CORES)) + 1):
        setting, name = replace(usual, processes=count), f"{count} process(es)"
        yield timing(plan, workload, name, setting, (USUAL_RATE,), sides, varied="processes")


def profiles(plan: Plan, workload: Workload) -> Rows:
    """Yield part (i): what kinds of operators the time goes into, of both trainers."""
    usual = plan.usual(workload)
    longer = replace(usual, length=16 if plan.quick else 128, fixed_length=True)
    settings = ((usual, (0.1, 1.0)), (longer, (USUAL_RATE,)))
    for (setting, rates), (side, build) in product(settings, SIDES.items()):
        with Loop(setting, partial(build, workload), SolveRate) as loop:
            loop.run(setting.H)  # warms it up
            for rate in rates:
                loop.call(_set_rate, rate)
                samples = [operators.measure(loop, setting.H) for _ in range(plan.repeats)]
                labels = _labels(workload, setting) | {"rate": rate, "trainer": side}
                yield labels | summary.operators(samples) | {"samples": samples}


def suite(plan: Plan, folder: str) -> Rows:
    """Yield part (j): the tests that need a GPU, each with its outcome."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", folder]
        command += ["-p", "no:cacheprovider", f"--junitxml={path}"]
        alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=ROOT, env=alone, stdout=sys.stderr, check=False)
        if not path.exists():
            raise RuntimeError(f"pytest ended with status {done.returncode}")
        for case in ET.parse(path).iter("testcase"):
            yield summary.test(case) | {"samples": {}}


def on_gpu(plan: Plan, workload: Workload) -> Iterator[Experiment]:
    """Yield part (k): RapidTrainer against TRL's trainer in bfloat16, for every H."""
    usual = Setting(n_step=32, micro_batch=16, length=128, fixed_length=True, bf16=True)
    if plan.quick:
        usual = replace(usual, n_step=8, micro_batch=4, length=8)
    for h in (1, 4) if plan.quick else (1, 2, 4, 8, 16):
        setting = replace(usual, H=h)
        yield timing(plan, workload, f"H={h}", setting, (0.1, 0.5), more=floor.use)


def padding(plan: Plan, workload: Workload) -> Iterator[Experiment]:
    """Yield part (l): what padding costs both trainers, for several H."""
    sides = {
        "stock": stock,
        "padded": partial(stock, kind=PaddedPerPass),
        "unpacked": partial(rapid, pack=False),
        "rapid": rapid,
    }
    for h in (1, 4) if plan.quick else (1, 4, 16):
        setting = replace(plan.usual(workload), H=h)
        yield timing(plan, workload, f"padding, H={h}", setting, (USUAL_RATE,), sides)


def gradients(plan: Plan, workload: Workload) -> Rows:
    """Yield part (m): how near TRL's gradient is to RAPID's, at steps on an inference batch."""
    usual = plan.usual(workload)
    setting = replace(usual, H=4 if plan.quick else 16, micro_batch=usual.n_step)
    seeds = []
    for seed in range(plan.repeats):
        build = partial(stock, workload, kind=Float64, seed=seed, **LEARNING)
        with Loop(setting, build, partial(graded, workload)) as loop:
            seeds.append(loop.call(compare, setting))
    for step in [2**power for power in range(setting.H.bit_length())]:
        samples = [steps[step - 1] for steps in seeds]
        labels = _labels(workload, setting) | {"step": step}
        yield labels | summary.spreads(samples) | {"samples": samples}


def learning(plan: Plan, workload: Workload) -> Rows:
    """Yield part (n): what is learned by TRL's trainer and by ours, with the real grader."""
    setting = plan.usual(workload)
    stretches, steps = (2, 4) if plan.quick else (4, 16)
    samples = [[] for _ in range(stretches)]
    for seed in range(plan.repeats):
        solved = {}
        for side, build in SIDES.items():
            build = partial(build, workload, seed=seed, **LEARNING)
            with Loop(setting, build, partial(graded, workload)) as loop:
                solved[side] = [loop.run(steps)["solved"] for _ in samples]
        for some, theirs, ours in zip(samples, *solved.values(), strict=True):
            some.append({"stock": theirs, "rapid": ours, "gap": ours - theirs})
    for number, some in enumerate(samples, 1):
        labels = _labels(workload, setting) | {"until": number * steps, "seeds": plan.repeats}
        yield labels | summary.spreads(some) | {"samples": some}


def only(rows: Callable[..., Rows], name: str = "") -> Callable[..., Iterator[Experiment]]:
    """Return what makes the one experiment of a part whose rows are yielded here."""

    def build(plan: Plan, subject: Workload | str) -> Iterator[Experiment]:
        called = subject if isinstance(subject, str) else f"{subject.name}, {name}"
        yield Experiment(called, partial(rows, plan, subject))

    return build


class Part(NamedTuple):
    """The models or benchmarks that a part measures, and what makes the experiments of each."""

    subjects: tuple[str, ...]
    build: Callable[..., Iterator[Experiment]]


PARTS = {
    "a": Part(("tiny", "smollm2"), against_stock),
    "b": Part(("tiny",), phases),
    "c": Part(("tiny",), savings),
    "d": Part(("tiny",), sizes),
    "e": Part(("tiny", "smollm2"), distances),
    "f": Part(("tiny", "smollm2"), only(peaks, "memory")),
    "g": Part(tuple(name for name, task in BENCHMARKS.items() if task.draw), only(verdicts)),
    "h": Part(("tiny",), growth),
    "i": Part(("tiny",), only(profiles, "operators")),
    "j": Part(("tests/gpu",), only(suite)),
    "k": Part(UNTRAINED, on_gpu),
    "l": Part(("tiny",), padding),
    "m": Part(("tiny",), only(gradients, "gradients")),
    "n": Part(("tiny",), only(learning, "learning")),
}
