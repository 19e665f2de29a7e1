"""`rapid plan`: what its options ask for, put together and printed."""

import argparse
from collections import Counter
from dataclasses import replace

import pandas as pd

from rapid.algorithms import ALGORITHMS
from rapid.algorithms.names import parse
from rapid.artifacts.files import BadInput
from rapid.config.params import load_files
from rapid.config.specs import runs
from rapid.cost.estimates import (
    Advice,
    Estimate,
    Estimator,
    advise,
    estimates,
    longest_chain,
    wall_clock,
    warnings,
)
from rapid.cost.expected import Expected, usual
from rapid.cost.measured import FITTED, check, fit, read_runs
from rapid.cost.roofline import Roofline, gpu
from rapid.cost.shapes import shapes
from rapid.text import columns, duration, listing, size


def plan(args: argparse.Namespace) -> str:
    """Return what the command prints.

    Raises:
        BadInput: params.yaml, options, runs or models cannot be used.
    """
    params = load_files(*args.configfile)
    known, verdicts = shapes(params, dict(args.config)), dict(args.verdict_seconds)
    options = {name: getattr(args, name, None) for name in Expected.__dataclass_fields__}
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := [name for name in verdicts if name not in params.benchmarks]:
        raise BadInput(
            f"--verdict-seconds {unknown[0]}=...: no such benchmark; benchmarks: "
            f"{', '.join(params.benchmarks)}"
        )
    if args.report and getattr(params, args.report) is None:
        raise BadInput(f"--report {args.report}: the parameters have no section {args.report}")
    if args.check and args.gpu:
        raise BadInput("--check compares with runs on disk: give --calibrate, not --gpu")
    memory = args.memory and args.memory * 1e9
    if args.gpu:
        machine = Roofline(gpu(args.gpu), known)
        memory = memory or machine.gpu.memory
        compute = params.compute.model_copy(update={"device": "gpu"})
        params = params.model_copy(update={"compute": compute})
    else:
        limit = max(one.max_completion_length for one in params.benchmarks.values())
        observed, unseen = read_runs(args.calibrate, params), usual(limit).changed(given)
        if args.check:
            return check_text(check(observed, known, unseen))
        machine = fit(observed, known, unseen)
    machine = replace(machine, verdict=machine.verdict | verdicts)
    estimator = Estimator(params, machine, given, memory, args.report)
    return plan_text(estimator, args.gpus if estimator.on_gpus else args.cores)


def plan_text(estimator: Estimator, capacity: int) -> str:
    """Return the plan for so many GPUs or cores as text: jobs, totals, and what it rests on."""
    found = estimates(estimator)
    unit = "GPU" if estimator.on_gpus else "core"
    work, disk = sum(one.unit_seconds for one in found), size(sum(one.disk for one in found))
    most = max((one.memory for one in found if one.memory), default=0.0)
    stages = Counter()
    for one in found:
        stages[one.job.stage] += one.unit_seconds
    shares = [f"{name} {seconds / work:.0%}" for name, seconds in stages.items()]
    heads = ["benchmark", "model", "job", "jobs", "time each", f"{unit}-hours", "memory", "disk"]
    return "\n".join(
        [
            *columns([heads, *rows(found)], left=3),
            "",
            f"{len(found)} jobs: {work / 3600:.2f} {unit}-hours, {disk} on disk "
            f"(DVC's cache holds a copy), at most {size(most)} of memory a process",
            f"on {capacity} {unit}(s): {duration(wall_clock(found, capacity))} of wall-clock time; "
            f"the longest chain of jobs takes {duration(longest_chain(found))}",
            f"of the work: {', '.join(shares)}",
            *_part("Will not work as planned", warnings(estimator, found, capacity)),
            *_part("RAPID's H and passes", [_advice(one) for one in advise(estimator)]),
            *_part("Taken for true", _assumed(estimator)),
            *_part("Rates", estimator.machine.notes()),
        ]
    )


def rows(found: list[Estimate]) -> list[list[str]]:
    """Return a row for each benchmark, model and algorithm; times are means over its jobs."""
    grouped: dict[tuple, list[Estimate]] = {}
    for one in found:
        grouped.setdefault(one.key, []).append(one)
    return [
        [
            *key,
            str(len(some)),
            duration(sum(one.seconds.total for one in some) / len(some)),
            f"{sum(one.unit_seconds for one in some) / 3600:.3f}",
            size(max(one.memory or 0 for one in some)) if some[0].memory else "-",
            size(sum(one.disk for one in some)),
        ]
        for key, some in grouped.items()
    ]


def check_text(found: pd.DataFrame) -> str:
    """Return predicted and measured seconds by benchmark, model and algorithm, and over all."""
    heads = ["benchmark", "model", "algorithm", "runs", "predicted", "measured", "ratio", "range"]
    grouped = sorted(found.groupby(heads[:3]), key=lambda item: _order(*item[0]))
    table = [[*key, *_compared(some)] for key, some in grouped]
    first = f"Fitted to {listing(FITTED)} of the first seed; seconds of the training loops of all"
    lines = columns([heads, *table, ["all", "", "", *_compared(found)]], left=3)
    return "\n".join([f"{first} other runs:", *lines])


def _compared(some: pd.DataFrame) -> list[str]:
    predicted, measured = some.predicted.sum(), some.measured.sum()
    ratio, ratios = predicted / measured, some.predicted / some.measured
    span = f"{ratios.min():.2f}-{ratios.max():.2f}"
    return [str(len(some)), f"{predicted:.1f}", f"{measured:.1f}", f"{ratio:.2f}", span]


def _order(benchmark: str, model: str, algorithm: str) -> tuple:
    parsed = parse(algorithm)
    return benchmark, model, list(ALGORITHMS).index(parsed.algorithm.name), parsed.H, algorithm


def _advice(one: Advice) -> str:
    runtimes = ", ".join(f"H={h} {duration(seconds)}" for h, seconds in one.runtimes.items())
    text = f"{one.benchmark}, {one.model}: H={one.H} ({runtimes})"
    if one.micro_batch is None:
        return f"{text}; the memory is not known (--memory), so neither is the largest micro-batch"
    if not one.micro_batch:
        return f"{text}; not one completion of full length fits in a pass"
    return f"{text}; micro_batch up to {one.micro_batch}, a token_budget of {one.token_budget}"


def _assumed(estimator: Estimator) -> list[str]:
    """Return what is expected, a line for each benchmark and model that is trained."""
    benchmarks = estimator.params.benchmarks
    pairs = dict.fromkeys((run.benchmark, run.model) for run in runs(estimator.params))
    lines = []
    for name, model in sorted(pairs, key=lambda pair: list(benchmarks).index(pair[0])):
        one = estimator.expect(name, model)
        lines.append(
            f"{name}, {model}: completions of {one.length:.0f} tokens (limit "
            f"{benchmarks[name].max_completion_length}; spread {one.spread:.2f}) after prompts of "
            f"{one.prompt:.0f}; {one.signal:.0%} of groups with a signal, {one.rewarded:.0%} with "
            "a reward"
        )
    kept = sorted({estimator.expect(name, estimator.params.teacher).kept for name in benchmarks})
    return [
        *lines,
        f"the teacher's completions are correct: {', '.join(f'{share:.0%}' for share in kept)}",
    ]


def _part(title: str, lines: list[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {line}" for line in lines)] if lines else []
