"""The experiments. Each is a list of rows for a table, with the raw samples of both sides."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from performance import floor, graders, memory
from performance.models import Workload
from performance.rewards import TIMEOUT, Counted, Graded, SolveRate
from performance.runs import Loop, as_json, loops
from performance.trainers import SIDES, Setting, rapid
from rapid.benchmarks import BENCHMARKS

RATES = (0.0, 0.1, 0.3, 0.5, 1.0)
USUAL_RATE = 0.3  # where the solve rate is not what is varied
WAIT = 0.005  # seconds that a verdict takes, where grading is beside sampling
# Nothing saved: all groups, passes of a fixed size padded to the inference batch, log mu found anew.
PLAIN = {
    "skip_zero_groups": False,
    "pack": False,
    "reuse_logp": False,
    "share_prefill": False,
    "reduce_metrics_once": False,
    "grading_workers": 0,
}
SAVINGS = {
    name: {name: True}
    for name in ("skip_zero_groups", "pack", "reuse_logp", "share_prefill", "reduce_metrics_once")
}
ALL = {name: True for one in SAVINGS.values() for name in one}
GRADING = {"grading_workers": 4}

REAL_MODEL = "aef"  # parts that measure a real model too
NO_MODEL = "g"  # parts that measure none

Advance = Callable[[float], None]  # called with the share of an experiment that is done
SECONDS = {"tiny": 0.01, "smollm2": 1.4}  # of a core for each completion; to guess the time left
START = 2.0  # seconds to build a loop and warm it up


@dataclass(frozen=True)
class Experiment:
    """Something to measure.

    Args:
        seconds: a guess of what it takes.
        run: measures, and returns rows.
    """

    part: str
    name: str
    seconds: float
    run: Callable[[Advance], list[dict]]


@dataclass(frozen=True)
class Plan:
    """What is to be measured, how often and on what."""

    repeats: int
    quick: bool
    problems: Path | None = None

    def repeats_of(self, workload: Workload) -> int:
        """A real model takes minutes: it is measured three times."""
        return self.repeats if workload.name == "tiny" else min(3, self.repeats)

    def usual(self, workload: Workload) -> Setting:
        """The setting of a model where it is not what is varied."""
        if workload.name == "tiny":
            return Setting(length=40 if self.quick else 80)
        return Setting(n_step=4, micro_batch=4, length=16 if self.quick else 48)

    def batches(self, workload: Workload, setting: Setting) -> int:
        """Inference batches of a sample: enough to last a second."""
        enough = 64 if self.quick else 128
        return max(1, enough // setting.inference_batch) if workload.name == "tiny" else 1


def experiments(plan: Plan, parts: str, workloads: list[Workload]) -> list[Experiment]:
    """The experiments of these parts, in order."""
    made = []
    for part in parts:
        if part in NO_MODEL:
            made += verdicts(plan)
            continue
        for workload in workloads:
            made += BUILDERS[part](plan, workload)
    return made


def paired(
    plan: Plan, workload: Workload, setting: Setting, sides: dict, rewards, each, advance: Advance
) -> list[dict]:
    """Rows of two loops that take turns.

    Args:
        sides: name -> function that builds a trainer, of both.
        rewards: makes a loop's reward.
        each: of every row the attributes that it sets in the reward, and what else says which it is.
    """
    repeats, batches = plan.repeats_of(workload), plan.batches(workload, setting)
    makers = [partial(Loop, setting, partial(build, workload), rewards) for build in sides.values()]
    rows = []
    with loops(*makers) as pair:
        for loop in pair:
            loop.run(setting.H)  # warms it up
        for number, (attributes, labels) in enumerate(each):
            samples = {name: [] for name in sides}
            for loop in pair:
                loop.set(**attributes)
            for repeat in range(repeats):
                for name, loop in zip(sides, pair, strict=True):
                    samples[name].append(loop.run(batches * setting.H))
                advance((number * repeats + repeat + 1) / (len(each) * repeats))
            rows.append(
                {
                    "model": workload.described,
                    "workload": workload.name,
                    **labels,
                    "setting": asdict(setting),
                    "sides": {name: as_json(some) for name, some in samples.items()},
                }
            )
    return rows


def _guess(plan: Plan, workload: Workload, setting: Setting, sides: int, rows: int = 1) -> float:
    batches = plan.batches(workload, setting) * plan.repeats_of(workload) * rows + 1
    each = SECONDS[workload.name] * (0.5 + setting.length / 160 if workload.name == "tiny" else 1)
    return sides * (START + batches * setting.inference_batch * each)


# (a) Against TRL ----------------------------------------------------------------------------------


def against_stock(plan: Plan, workload: Workload) -> list[Experiment]:
    usual = plan.usual(workload)

    def at_rates(setting: Setting, rates, name: str) -> Experiment:
        each = [({"rate": rate}, {"reward": "set", "rate": rate}) for rate in rates]
        run = partial(paired, plan, workload, setting, SIDES, partial(SolveRate, 0.1), each)
        guess = _guess(plan, workload, setting, 2, len(rates))
        return Experiment("a", f"{workload.name}, {name}", guess, run)

    rates = (0.1, 1.0) if plan.quick else RATES
    made = [at_rates(usual, rates, "solve rates")]
    if workload.name == "tiny":
        if not plan.quick:
            made += [
                at_rates(replace(usual, micro_batch=usual.n_step), (0.1,), "a pass for each step"),
                at_rates(replace(usual, n_step=4, micro_batch=4), (0.1,), "the pipeline's N_step"),
            ]
        each = [({}, {"reward": "graded", "rate": None})]
        run = partial(paired, plan, workload, usual, SIDES, partial(_graded, workload), each)
        made.append(Experiment("a", "tiny, graded", _guess(plan, workload, usual, 2), run))
    return made


def _graded(workload: Workload) -> Counted:
    grader = BENCHMARKS["mbpp_plus"].grader(TIMEOUT).__enter__()  # ends with the loop's process
    return Graded(grader, workload.problems)


# (b) Phases ---------------------------------------------------------------------------------------


def phases(plan: Plan, workload: Workload) -> list[Experiment]:
    if workload.name != "tiny":
        return []
    grid = (
        [(1, 4), (4, 16)] if plan.quick else [(h, n) for n in (4, 16, 32) for h in (1, 2, 4, 8, 16)]
    )
    made = []
    for h, n_step in grid:
        setting = replace(plan.usual(workload), H=h, n_step=n_step, micro_batch=min(8, n_step))
        each = [({}, {"rate": USUAL_RATE})]
        run = partial(
            paired, plan, workload, setting, {"rapid": rapid}, partial(SolveRate, USUAL_RATE), each
        )
        guess = _guess(plan, workload, setting, 1)
        made.append(Experiment("b", f"H={h}, N_step={n_step}", guess, run))
    return made


# (c) Savings --------------------------------------------------------------------------------------


def savings(plan: Plan, workload: Workload) -> list[Experiment]:
    if workload.name != "tiny":
        return []
    setting = plan.usual(workload)
    every = {name: (switches, 0.0) for name, switches in SAVINGS.items()}
    every["all of these"] = (ALL, 0.0)
    every["grading_workers"] = (GRADING, WAIT)
    every["all, and grading_workers"] = (ALL | GRADING, WAIT)
    if plan.quick:
        every = {name: every[name] for name in ("pack", "all, and grading_workers")}
    made = []
    for name, (switches, wait) in every.items():
        sides = {"plain": partial(rapid, **PLAIN), "saved": partial(rapid, **PLAIN | switches)}
        rewards = partial(SolveRate, 0.1, wait)
        each = [({}, {"saving": name, "rate": 0.1, "wait": wait})]
        run = partial(paired, plan, workload, setting, sides, rewards, each)
        made.append(Experiment("c", name, _guess(plan, workload, setting, 2), run))
    return made


# (d) Length and N_inference -----------------------------------------------------------------------


def sizes(plan: Plan, workload: Workload) -> list[Experiment]:
    if workload.name != "tiny":
        return []
    usual = plan.usual(workload)
    lengths = (16, 32) if plan.quick else (16, 32, 64, 128)
    steps = (2, 4) if plan.quick else (1, 2, 4, 8, 16)
    varied = [("length", replace(usual, length=n, fixed_length=True)) for n in lengths]
    varied += [("N_inference", replace(usual, H=h)) for h in steps]
    made = []
    for what, setting in varied:
        each = [({}, {"varied": what, "rate": USUAL_RATE})]
        rewards = partial(SolveRate, USUAL_RATE)
        run = partial(paired, plan, workload, setting, SIDES, rewards, each)
        value = setting.length if what == "length" else setting.inference_batch
        made.append(Experiment("d", f"{what} {value}", _guess(plan, workload, setting, 2), run))
    return made


# (e) Floor ----------------------------------------------------------------------------------------


def distances(plan: Plan, workload: Workload) -> list[Experiment]:
    rates = (0.1, 0.5) if workload.name == "tiny" and not plan.quick else (0.1,)
    run = partial(_distance, plan, workload, plan.usual(workload), rates)
    guess = _guess(plan, workload, plan.usual(workload), 2, len(rates))
    return [Experiment("e", workload.name, guess, run)]


def _distance(plan, workload, setting, rates, advance) -> list[dict]:
    repeats, batches = plan.repeats_of(workload), plan.batches(workload, setting)
    rows = []
    with loops(partial(Loop, setting, partial(rapid, workload), partial(SolveRate, 0.1))) as (
        loop,
    ):
        loop.run(setting.H)
        for number, rate in enumerate(rates):
            loop.set(rate=rate)
            samples, floors = [], []
            for repeat in range(repeats):
                samples.append(loop.run(batches * setting.H))
                floors.append(
                    {
                        "sampler": loop.call(floor.sampler_seconds, setting),
                        "operations": loop.call(floor.work, setting),
                        "rate": loop.call(floor.multiply_rate, setting),
                    }
                )
                advance((number * repeats + repeat + 1) / (len(rates) * repeats))
            rows.append(
                {
                    "model": workload.described,
                    "workload": workload.name,
                    "rate": rate,
                    "setting": asdict(setting),
                    "sides": {"rapid": as_json(samples)},
                    "floors": floors,
                }
            )
    return rows


# (f) Memory ---------------------------------------------------------------------------------------


def peaks(plan: Plan, workload: Workload) -> list[Experiment]:
    setting = plan.usual(workload)
    batches = 2 if workload.name == "tiny" else 1
    repeats = 1 if plan.quick else min(plan.repeats, 3 if workload.name == "tiny" else 2)
    guess = 2 * repeats * (12 + batches * setting.inference_batch * SECONDS[workload.name])
    run = partial(_peaks, plan, workload, setting, repeats, batches)
    return [Experiment("f", workload.name, guess, run)]


def _peaks(plan, workload, setting, repeats, batches, advance) -> list[dict]:
    sides: dict[str, list] = {name: [] for name in SIDES}
    for repeat in range(repeats):
        for side in sides:
            taken = memory.measure(side, workload, plan.problems, setting, batches)
            sides[side].append(taken)
        advance((repeat + 1) / repeats)
    return [
        {
            "model": workload.described,
            "workload": workload.name,
            "rate": memory.RATE,
            "setting": asdict(setting),
            "sides": sides,
        }
    ]


# (g) Graders --------------------------------------------------------------------------------------

VERDICT, GRADER_START = 0.1, 2.0  # seconds, to guess the time left


def verdicts(plan: Plan) -> list[Experiment]:
    count = 10 if plan.quick else 100
    made = []
    guess = plan.repeats * (GRADER_START + 2 * count * VERDICT)
    for name in (name for name, benchmark in BENCHMARKS.items() if benchmark.draw):
        run = partial(_verdicts, name, count, plan.repeats)
        made.append(Experiment("g", name, guess, run))
    return made


def _verdicts(name, count, repeats, advance) -> list[dict]:
    return [{"benchmark": name, "sides": graders.measure(name, count, repeats, advance)}]


BUILDERS: dict[str, Callable[[Plan, Workload], list[Experiment]]] = {
    "a": against_stock,
    "b": phases,
    "c": savings,
    "d": sizes,
    "e": distances,
    "f": peaks,
}
