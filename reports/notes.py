"""The words of the tables: names of rows and columns, and the notes that stand under a table."""

import re

import pandas as pd

from rapid.algorithms.names import parse
from rapid.benchmarks import BENCHMARKS
from rapid.config.specs import BASE
from rapid.grading.verdicts import INFRASTRUCTURE
from reports.formats import listing

STALENESS = (
    "Stale: the clipped importance weight in log scale, its absolute value averaged over optimizer "
    "steps."
)
MEMORY = (
    "Memory: the most that the training process held, in 1e6 bytes: resident on a CPU, what it "
    "allocated on a GPU."
)

# What the mark for it says: see the legend that each renderer writes.
NOISE = (
    "Within noise of the best: the 95 % interval of the paired difference from it covers 0 "
    "(accuracy: bootstrap over problems and seeds; runtime: t-test on logarithms over seeds)."
)
INTERVALS = "Intervals hold 95 % and account for problems and seeds: a bootstrap draws both with replacement."


def benchmark(name: str) -> str:
    return BENCHMARKS[name].label


def algorithm(name: str) -> str:
    """rapid-H8,eta=4 -> RAPID (H=8), eta = 4."""
    plain, *changes = name.split(",")
    try:
        title = "Base" if plain == BASE else parse(plain).label
    except ValueError:
        title = plain
    return ", ".join([title, *(change.replace("=", " = ") for change in changes)])


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


def resolution(runs: pd.DataFrame) -> str:
    """The least that accuracy can differ by: points of one problem, and of one of its completions."""
    done = runs[(runs.problems > 0) & (runs.samples > 0)]
    if done.empty:
        return "What the evaluation resolves is not known."
    parts = []
    for name, part in done.groupby("benchmark", sort=False):
        problems, samples = part.problems.min(), part.samples.min()
        problem, completion = 100 / problems, 100 / problems / samples
        parts.append(f"{problem:.2g} of {benchmark(name)} ({completion:.2g})")
    return (
        "Resolution: one problem (one completion of it) is this many points of one run: "
        f"{listing(parts)}."
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
    """The machine and the code, as the training jobs wrote them down, and what was amiss in grading."""
    trained = runs[(runs.no_summary == "") & (runs.algorithm != BASE)]
    made = [*machines(list(trained.hardware)), *commits(list(trained.commit))]
    if trained.empty:
        made = ["No model has been trained."]
    return [*made, *unwalled(list(runs.unwalled)), *ungraded(runs)]


def unwalled(runs: list[set[str]]) -> list[str]:
    """A warning where completions may have been graded without walls around them."""
    count = sum(map(bool, runs))
    if not count:
        return []
    keys = listing([f"grading.{key}" for key in sorted(set().union(*runs))])
    return [
        f"Unsafe: {count} of {len(runs)} runs were allowed to be graded without walls around "
        f"completions ({keys}); their manifests say what stood."
    ]


def ungraded(runs: pd.DataFrame) -> list[str]:
    """The completions that have no reward because a grader died, by run; nothing where there are none."""
    found = [
        f"{reasons[INFRASTRUCTURE]} of {sum(reasons.values())} {where} of {algorithm(run.algorithm)} "
        f"on {benchmark(run.benchmark)} ({run.model}, seed {run.seed})"
        for run in runs.itertuples()
        for where, reasons in (
            ("in training", run.reasons),
            ("in the evaluation", run.evaluation_reasons),
        )
        if INFRASTRUCTURE in reasons
    ]
    if not found:
        return []
    return [
        f"Completions without a verdict, because the grader died over them twice: {'; '.join(found)}. "
        "Their groups gave no gradient. Pass@k is of the others, and leaves out problems with fewer "
        "than k of them."
    ]


def machines(hardware: list[str]) -> list[str]:
    """The machines that were used, and a warning where they differ."""
    found = list(dict.fromkeys(name or "not recorded" for name in hardware))
    if not found:
        return []
    text = f"Hardware: {'; '.join(found)}."
    if len(found) > 1:
        text += " Runtimes on different hardware do not compare."
    return [text]


def commits(names: list[str]) -> list[str]:
    """The code that the runs came from."""
    found = list(dict.fromkeys(short(name) or "not recorded" for name in names))
    if not found:
        return []
    return [f"Code: commit{'' if len(found) == 1 else 's'} {listing(found)}."]


def _numbers(values: pd.Series, last: str) -> str:
    return listing([f"{value:g}" for value in sorted(set(values))], last)


def short(commit: str) -> str:
    """The first 12 digits of a commit, and what follows it (+dirty)."""
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]+", r"\1", commit)
