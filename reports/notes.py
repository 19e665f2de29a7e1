"""The words of the tables: names of rows and columns, and the notes that stand under a table."""

import re

import pandas as pd

from rapid.specs import BASE
from reports.formats import listing

BENCHMARKS = {"mbpp_plus": "MBPP+", "math": "MATH", "minif2f": "MiniF2F"}
ALGORITHMS = {
    BASE: "Base",
    "sft": "SFT",
    "grpo": "GRPO",
    "naive-grpo": "naive GRPO",
    "pg": "PG",
    "dapo": "DAPO",
}
STALENESS = (
    "Stale: the clipped importance weight in log scale, its absolute value averaged over optimizer "
    "steps."
)


def benchmark(name: str) -> str:
    return BENCHMARKS.get(name, name)


def algorithm(name: str) -> str:
    """rapid-H8 -> RAPID (H=8)."""
    ratio = re.fullmatch(r"rapid-H(\d+)", name)
    return f"RAPID (H={ratio[1]})" if ratio else ALGORITHMS.get(name, name)


def seeds(values: list[int]) -> str:
    if len(values) == 1:
        return f"One run a cell (n = 1, seed {values[0]}), and so no standard deviation."
    return (
        f"Mean ± sample standard deviation over n = {len(values)} runs "
        f"(seeds {listing([str(value) for value in values])})."
    )


def evaluation(runs: pd.DataFrame) -> str:
    """What pass@k was estimated from, as the evaluations say it."""
    done = runs[runs.samples.notna()]
    if done.empty:
        return "Accuracy: no model has been evaluated."
    problems = [
        f"{_numbers(part.problems, 'or')} of {benchmark(name)}"
        for name, part in done.groupby("benchmark", sort=False)
    ]
    return (
        f"Pass@k: unbiased estimate from {_numbers(done.samples, 'or')} completions a problem "
        f"(temperature {_numbers(done.temperature, 'or')}, top-p {_numbers(done.top_p, 'or')}) "
        f"on the test problems: {listing(problems)}."
    )


def runtime(title: str) -> str:
    return (
        f"{title}: wall-clock time of the training loop (sampling, grading, backpropagation, "
        "weight synchronization); start-up is apart."
    )


def unranked(algorithms: list[str], left_out: tuple[str, ...]) -> str:
    names = [algorithm(name) for name in algorithms if name in left_out]
    verb = "takes" if len(names) == 1 else "take"
    return f"{listing(names)} {verb} no part in the comparison of runtimes."


def points(ratios: list[int], seeds: list[int]) -> str:
    """Over what the correlations are."""
    return (
        "Correlated over individual runs, not over means of seeds: a point is a run, "
        f"n = {len(ratios) * len(seeds)} a benchmark (H = {listing([str(h) for h in ratios])}; "
        f"seed{'' if len(seeds) == 1 else 's'} {listing([str(seed) for seed in seeds])})."
    )


def provenance(runs: pd.DataFrame) -> list[str]:
    """The machine and the code, as the training jobs wrote them down."""
    trained = runs[(runs.no_summary == "") & (runs.algorithm != BASE)]
    if trained.empty:
        return ["No model has been trained."]
    machines = list(dict.fromkeys(trained.hardware.replace("", "not recorded")))
    hardware = f"Hardware: {'; '.join(machines)}."
    if len(machines) > 1:
        hardware += " Runtimes on different hardware do not compare."
    commits = list(dict.fromkeys(_short(commit) or "not recorded" for commit in trained.commit))
    return [hardware, f"Code: commit{'' if len(commits) == 1 else 's'} {listing(commits)}."]


def _numbers(values: pd.Series, last: str) -> str:
    return listing([f"{value:g}" for value in sorted(set(values))], last)


def _short(commit: str) -> str:
    """The first 12 digits of a commit, and what follows it (+dirty)."""
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]+", r"\1", commit)
