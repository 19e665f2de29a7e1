"""`rapid plan`: print the estimated cost of all jobs, and advice on H and micro-batches."""

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace
from math import inf

from rapid.artifacts.files import BadInput
from rapid.config.params import load_config_files
from rapid.config.specs import list_table_runs
from rapid.cost.estimates import (
    Estimator,
    JobCost,
    advise,
    estimate_jobs,
    find_longest_chain,
    find_problems,
)
from rapid.cost.expected import Expected
from rapid.cost.measured import fit_rates, read_runs
from rapid.cost.roofline import build_gpu_machine
from rapid.cost.shapes import load_shapes
from rapid.text import align_columns, format_duration, format_size


def plan(args: argparse.Namespace) -> str:
    """Return the output of `rapid plan` with these options.

    Raises:
        BadInput: params.yaml, options, runs or models cannot be used.
    """
    params = load_config_files(args.configfile)
    shapes, verdict_seconds = load_shapes(params, dict(args.config)), dict(args.verdict_seconds)
    options = {field.name: getattr(args, field.name, None) for field in fields(Expected)}
    user_values = {name: value for name, value in options.items() if value is not None}
    if unknown := [name for name in verdict_seconds if name not in params.benchmarks]:
        raise BadInput(
            f"--verdict-seconds {unknown[0]}=...: no such benchmark; the benchmarks are "
            f"{', '.join(params.benchmarks)}"
        )
    if args.report and getattr(params, args.report) is None:
        raise BadInput(f"--report {args.report}: the parameters have no section {args.report}")
    memory = args.memory * 1e9 if args.memory else inf
    if args.gpu:
        machine = build_gpu_machine(args.gpu, shapes)
        memory = machine.rates.memory if memory == inf else memory
        compute = params.compute.model_copy(update={"device": "gpu"})
        params = params.model_copy(update={"compute": compute})
    else:
        machine = fit_rates(read_runs(args.calibrate, params), shapes, user_values)
    machine = replace(machine, verdict_seconds={**machine.verdict_seconds, **verdict_seconds})
    estimator = Estimator(params, machine, user_values, memory, args.report)
    return render_plan(estimator, args.gpus if estimator.uses_gpus else args.cores)


def render_plan(estimator: Estimator, capacity: int) -> str:
    """Return the plan as text: a table of jobs, totals, problems, advice, assumptions and rates.

    Args:
        capacity: number of GPUs, or of cores if jobs run on CPUs.
    """
    costs, machine = estimate_jobs(estimator), estimator.machine
    unit = "GPU" if estimator.uses_gpus else "core"
    total = sum(cost.unit_seconds for cost in costs)
    disk = format_size(sum(cost.disk for cost in costs))
    chain = find_longest_chain(costs)
    wall_clock = format_duration(max(total / capacity, chain))
    seconds_by_stage = Counter()
    for cost in costs:
        seconds_by_stage[cost.job.stage] += cost.unit_seconds
    shares = ", ".join(f"{stage} {part / total:.0%}" for stage, part in seconds_by_stage.items())
    headings = ["benchmark", "model", "job", "jobs", "time each", f"{unit}-hours", "memory", "disk"]
    verdicts = ", ".join(f"{name} {value:.3g}" for name, value in machine.verdict_seconds.items())
    return "\n".join(
        [
            *align_columns([headings, *_build_rows(costs)], flush_left=3),
            "",
            f"{len(costs)} jobs: {total / 3600:.2f} {unit}-hours, {disk} of models on disk "
            "(DVC's cache holds a copy), at most "
            f"{format_size(max(cost.memory for cost in costs))} of memory per process",
            f"on {capacity} {unit}(s): at least {wall_clock} of wall-clock time; the longest chain "
            f"of jobs, each of which needs the one before it, takes {format_duration(chain)}",
            f"share of each stage in the {unit}-hours: {shares}",
            *_format_section("Will not work as planned", find_problems(estimator, costs, capacity)),
            *_format_section("Suggested H and micro-batches", advise(estimator)),
            *_format_section("Assumptions", _describe_assumptions(estimator)),
            *_format_section("Rates", [*machine.notes, f"seconds of a verdict: {verdicts}"]),
        ]
    )


def _build_rows(costs: list[JobCost]) -> Iterable[list[str]]:
    """Yield a row of the table for each benchmark, model and algorithm.

    Times are means over the jobs of the row, memory is the largest, hours and disk are sums.
    """
    groups: dict[tuple, list[JobCost]] = {}
    for cost in costs:
        groups.setdefault(cost.key, []).append(cost)
    for key, group in groups.items():
        memory, disk = max(cost.memory for cost in group), sum(cost.disk for cost in group)
        yield [
            *key,
            str(len(group)),
            format_duration(sum(cost.seconds for cost in group) / len(group)),
            f"{sum(cost.unit_seconds for cost in group) / 3600:.3f}",
            format_size(memory) if memory else "-",
            format_size(disk) if disk else "-",
        ]


def _describe_assumptions(estimator: Estimator) -> Iterable[str]:
    """Yield a line of expectations for each benchmark and model, and a line about the teacher."""
    params = estimator.params
    pairs = dict.fromkeys((run.benchmark, run.model) for run in list_table_runs(params))
    for benchmark, model in sorted(pairs, key=lambda pair: list(params.benchmarks).index(pair[0])):
        expected = estimator.expect(benchmark, model)
        yield (
            f"{benchmark}, {model}: completions of {expected.length:.0f} tokens (limit "
            f"{expected.limit}; --length-spread {expected.spread:.2f}) after prompts of "
            f"{expected.prompt:.0f}; {expected.signal:.0%} of groups with a signal, "
            f"{expected.rewarded:.0%} with a reward"
        )
    shares = ", ".join(
        f"{benchmark} {estimator.expect(benchmark, params.teacher).kept:.0%}"
        for benchmark in params.benchmarks
    )
    yield f"share of the teacher's completions that are correct: {shares}"


def _format_section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a title and these lines, indented; an empty list if there are no lines."""
    indented = [f"  {line}" for line in lines]
    return ["", f"{title}:", *indented] if indented else []
