"""The plan as text."""

from rapid.algorithms import ALGORITHMS
from rapid.algorithms.names import parse
from rapid.config.params import Params
from rapid.cost.advice import Advice
from rapid.cost.check import FITTED, Prediction
from rapid.cost.estimates import Estimate, Plant, Total, by_stage, kind, place

HEADS = ["benchmark", "model", "job", "jobs", "time each", "work", "memory", "disk"]


def plan_text(
    params: Params,
    plant: Plant,
    found: list[Estimate],
    total: Total,
    capacity: int,
    advice: list[Advice],
    warnings: list[str],
) -> str:
    """All of it: rows, totals, warnings, advice, and what it rests on."""
    unit = "GPU" if plant.gpus else "core"
    most = max((one.memory for one in found if one.memory), default=0.0)
    lines = [
        *table([[*HEADS[:5], f"{unit}-hours", *HEADS[6:]], *rows(found)]),
        "",
        f"{len(found)} jobs: {total.work / 3600:.2f} {unit}-hours, {size(total.disk)} on disk "
        f"(DVC's cache holds a copy), at most {size(most)} of memory a process",
        f"on {capacity} {unit}(s): {duration(total.wall)} of wall-clock time; the longest chain of "
        f"jobs takes {duration(total.longest_chain)}",
        "of the work: "
        + ", ".join(f"{name} {share / total.work:.0%}" for name, share in by_stage(found).items()),
        *_part("Will not work as planned", warnings),
        *_part("RAPID's H and passes", [_advice(one) for one in advice]),
        *_part("Taken for true", _assumed(params, plant)),
        *_part("Rates", plant.machine.notes()),
    ]
    return "\n".join(lines)


def rows(found: list[Estimate]) -> list[list[str]]:
    """A row for each benchmark, model and algorithm; times are means over its jobs."""
    grouped: dict[tuple, list[Estimate]] = {}
    for one in found:
        grouped.setdefault((*place(one.job), kind(one.job)), []).append(one)
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


def check_text(predictions: list[Prediction]) -> str:
    """Predicted, measured and ratio by benchmark, model and algorithm, and over all."""
    grouped: dict[tuple, list[Prediction]] = {}
    for one in predictions:
        run = one.run.spec.run
        grouped.setdefault((run.benchmark, run.model, run.algorithm), []).append(one)
    heads = ["benchmark", "model", "algorithm", "runs", "predicted", "measured", "ratio", "range"]
    body = [[*key, *_compared(some)] for key, some in sorted(grouped.items(), key=_order)]
    return "\n".join(
        [
            f"Fitted to {', '.join(FITTED[:-1])} and {FITTED[-1]} of the first seed; seconds of the "
            "training loops of all other runs:",
            *table([heads, *body, ["all", "", "", *_compared(predictions)]]),
        ]
    )


def _compared(some: list[Prediction]) -> list[str]:
    predicted, measured = sum(o.predicted for o in some), sum(o.measured for o in some)
    ratios = [one.ratio for one in some]
    return [
        str(len(some)),
        f"{predicted:.1f}",
        f"{measured:.1f}",
        f"{predicted / measured:.2f}",
        f"{min(ratios):.2f}-{max(ratios):.2f}",
    ]


def _order(item: tuple) -> tuple:
    benchmark, model, algorithm = item[0]
    parsed = parse(algorithm)
    return benchmark, model, list(ALGORITHMS).index(parsed.kind), parsed.H, algorithm


def _advice(one: Advice) -> str:
    runtimes = ", ".join(f"H={h} {duration(seconds)}" for h, seconds in one.runtimes.items())
    text = f"{one.benchmark}, {one.model}: H={one.H} ({runtimes})"
    if one.micro_batch is None:
        return f"{text}; the memory is not known (--memory), so neither is the largest micro-batch"
    if not one.micro_batch:
        return f"{text}; not one group of full length fits in a pass"
    return f"{text}; micro_batch up to {one.micro_batch}, a token_budget of {one.token_budget}"


def _assumed(params: Params, plant: Plant) -> list[str]:
    said = []
    for benchmark, model in dict.fromkeys(
        (name, model)
        for name in params.benchmarks
        for model in (params.tables.main.model, *params.tables.families.models)
        if model == params.tables.main.model or name == params.tables.families.benchmark
    ):
        one, limit = plant.expect(benchmark, model), params.benchmarks[benchmark]
        said.append(
            f"{benchmark}, {model}: completions of {one.length:.0f} tokens (limit "
            f"{limit.max_completion_length}; spread {one.spread:.2f}) after prompts of {one.prompt:.0f}; "
            f"{one.signal:.0%} of groups with a signal, {one.rewarded:.0%} with a reward"
        )
    kept = {plant.expect(name, params.teacher).kept for name in params.benchmarks}
    shares = ", ".join(f"{share:.0%}" for share in sorted(kept))
    return [*said, f"the teacher's completions are correct: {shares}"]


def _part(title: str, lines: list[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {line}" for line in lines)] if lines else []


def table(body: list[list[str]]) -> list[str]:
    """Lines of columns of equal width; the first three are on the left."""
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number < 3 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in body
    ]


def duration(seconds: float) -> str:
    """Seconds for a reader: 6.3s, 12.7m, 4h42m, 3d 4h."""
    if seconds < 120:
        return f"{seconds:.1f}s"
    if seconds < 7200:
        return f"{seconds / 60:.1f}m"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}h{minutes:02d}m" if hours < 72 else f"{hours // 24}d {hours % 24}h"


def size(count: float) -> str:
    """Bytes for a reader."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
