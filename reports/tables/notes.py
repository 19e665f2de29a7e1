"""The notes that stand under a table."""

import math

import pandas as pd

from rapid.algorithms import IMITATING
from rapid.config.specs import BASE
from rapid.grading.verdicts import INFRASTRUCTURE
from rapid.text import listing, short
from reports import formats, labels
from reports.measured import BASELINE

# What the mark for it says: see the legend that each renderer writes.
NOISE = (
    "Within noise of the best: the 95 % interval of the paired difference from it covers 0 "
    "(accuracy: over problems and seeds; runtime: t-test on logarithms over seeds)."
)
INTERVALS = (
    "Intervals hold 95 %, are Student's, and take both problems and seeds for drawn: the variance "
    "is that of an analysis of variance with both random, with Satterthwaite's degrees of freedom."
)


def seeds(values: list[int]) -> str:
    """Return over how many runs means are taken."""
    if len(values) == 1:
        return f"One run a cell (n = 1, seed {values[0]}), and so no standard deviation."
    return (
        f"Mean ± sample standard deviation over n = {len(values)} runs "
        f"(seeds {listing([str(value) for value in values])})."
    )


def evaluation(runs: pd.DataFrame) -> str:
    """Return what pass@k was estimated from, as the evaluations say it."""
    done = runs[runs.samples.notna()]
    if done.empty:
        return "Accuracy: no model has been evaluated."
    problems = [
        f"{_numbers(part.problems, 'or')} of {label}"
        for label, part in done.groupby("label", sort=False)
    ]
    return (
        f"Pass@k: unbiased estimate from {_numbers(done.samples, 'or')} completions per problem "
        f"(temperature {_numbers(done.temperature, 'or')}, top-p {_numbers(done.top_p, 'or')}) "
        f"on the test problems: {listing(problems)}."
    )


def resolution(runs: pd.DataFrame) -> str:
    """Return the least that accuracy can differ by: one problem, or one completion of it."""
    done = runs[runs.samples.notna()]
    if done.empty:
        return "What the evaluation resolves is not known."
    parts = []
    for label, part in done.groupby("label", sort=False):
        problems, samples = part.problems.min(), part.samples.min()
        problem, completion = 100 / problems, 100 / problems / samples
        parts.append(f"{problem:.2g} of {label} ({completion:.2g})")
    return (
        "Resolution: one problem (one completion of it) is this many points of one run: "
        f"{listing(parts)}."
    )


def unranked(algorithms: list[str], what: str, runs: pd.DataFrame) -> list[str]:
    """Return a note on the algorithms whose figures are not ranked; none where all are."""
    if not algorithms:
        return []
    verb = "takes" if len(algorithms) == 1 else "take"
    names = listing([labels.algorithm(name) for name in algorithms])
    why = [imitation(runs)] if IMITATING.name in algorithms else []
    return [f"{names} {verb} no part in the comparison of {what}.", *why]


def imitation(runs: pd.DataFrame) -> str:
    """Return why the runtime of imitation is not ranked, and whether the paper's reason holds."""
    text = f"{IMITATING.label} imitates demonstrations, whose making is not in its runtime."
    if "pass@1" not in runs:
        return text
    means = runs.groupby(["label", "model", "algorithm"], sort=False)["pass@1"].mean().unstack()
    gaps = (means.get(IMITATING.name, math.nan) - means.get(BASELINE, math.nan)).dropna()
    if gaps.empty:
        return text
    several = gaps.index.get_level_values("model").nunique() > 1
    parts = [
        f"{formats.points(gap)} on {label}{f' ({model})' * several}"
        for (label, model), gap in gaps.items()
    ]
    return (
        f"{text} The paper leaves it out for its poor accuracy. Here its Pass@1 less "
        f"{labels.algorithm(BASELINE)}'s, in points, is {listing(parts)}."
    )


def points(ratios: list[int], seeds: list[int]) -> str:
    """Return what the correlations are taken over."""
    return (
        "Correlated over individual runs, not over means of seeds: a point is a run, "
        f"n = {len(ratios) * len(seeds)} a benchmark (H = {listing([str(h) for h in ratios])}; "
        f"seed{'' if len(seeds) == 1 else 's'} {listing([str(seed) for seed in seeds])})."
    )


def provenance(runs: pd.DataFrame) -> list[str]:
    """Return notes on machine and code, by the training jobs, and on what was amiss in grading."""
    trained = runs[runs.no_summary == ""]
    found = [*machines(list(trained.hardware)), *commits(list(trained.commit))]
    if trained.empty:
        found = ["No model has been trained."]
    if starts := dict.fromkeys(trained[trained.start != BASE].start):
        first = listing([labels.algorithm(name) for name in starts])
        found.append(
            f"Start: RL starts from the model that {first} made with the same seed; Base is the "
            "model before both. Runtimes of RL leave out that of the start, which is therefore not "
            "ranked."
        )
    repeated, left = (trained.attempt > 1).sum(), trained.disturbed.sum()
    if repeated or left:
        found.append(
            "Disturbed: others took more than 20 % of a run's time. So "
            f"{repeated} of {len(trained)} runs were run again; of {left} the runtime is still too "
            "long."
        )
    if accepted := runs.accepted.sum():
        found.append(
            f"Accepted: {accepted} of {len(runs)} results are from code that has changed since, "
            "and were taken for current by `rapid accept`; their manifests say which files."
        )
    return [*found, *unwalled(list(runs.unwalled)), *ungraded(runs)]


def unwalled(runs: list[set[str]]) -> list[str]:
    """Return a warning where completions may have been graded without walls around them."""
    if not (count := sum(map(bool, runs))):
        return []
    keys = listing([f"grading.{key}" for key in sorted(set().union(*runs))])
    return [
        f"Unsafe: {count} of {len(runs)} runs were allowed to be graded without walls around "
        f"completions ({keys}); their manifests say what stood."
    ]


def ungraded(runs: pd.DataFrame) -> list[str]:
    """Return a note on completions without a reward because a grader died, if there are any."""
    found = [
        f"{reasons[INFRASTRUCTURE]} of {sum(reasons.values())} {where} of "
        f"{labels.algorithm(run.algorithm)} on {run.label} "
        f"({run.model}, seed {run.seed})"
        for run in runs.itertuples()
        for where, reasons in (
            ("in training", run.reasons),
            ("in the evaluation", run.evaluation_reasons),
        )
        if INFRASTRUCTURE in reasons
    ]
    text = (
        "Completions without a verdict, because the grader died over them twice: "
        f"{'; '.join(found)}. Their groups gave no gradient. Pass@k is of the others, and leaves "
        "out problems with fewer than k of them."
    )
    return [text] if found else []


def machines(hardware: list[str]) -> list[str]:
    """Return the machines that were used, and a warning where they differ."""
    found = list(dict.fromkeys(name or "not recorded" for name in hardware))
    if not found:
        return []
    text = f"Hardware: {'; '.join(found)}."
    if len(found) > 1:
        text += " Runtimes on different hardware do not compare."
    return [text]


def commits(names: list[str]) -> list[str]:
    """Return the code that the runs came from."""
    found = list(dict.fromkeys(short(name) or "not recorded" for name in names))
    if not found:
        return []
    return [f"Code: commit{'' if len(found) == 1 else 's'} {listing(found)}."]


def _numbers(values: pd.Series, last: str) -> str:
    return listing([f"{value:g}" for value in sorted(set(values))], last)
