"""Notes say just what the rows of a data frame give."""

import math

import pandas as pd
import pytest

from reports.tables import notes


def test_what_accuracy_is_from_and_the_least_that_it_can_differ_by():
    """That is by the fewest problems and completions; benchmarks are in the order of the runs."""
    rows = [("MBPP+", 4, 12), ("MBPP+", 3, 11), ("MATH", 16, 11), ("MATH", math.nan, None)]
    runs = pd.DataFrame(rows, columns=["label", "problems", "samples"])
    runs = runs.assign(temperature=0.6, top_p=0.95)
    assert notes.evaluation(runs) == (
        "Pass@k: unbiased estimate from 11 or 12 completions per problem (temperature 0.6, top-p "
        "0.95) on the test problems: 3 or 4 of MBPP+ and 16 of MATH."
    )
    # 100 / 3 and 100 / 33; 100 / 16 and 100 / 176.
    assert notes.resolution(runs).endswith(
        " points of one run: 33 of MBPP+ (3) and 6.2 of MATH (0.57)."
    )


def test_several_that_are_not_ranked_are_named_together():
    said = ["Base and PG take no part in the comparison of Memory."]
    assert notes.unranked(["base", "pg"], "Memory", pd.DataFrame()) == said


def test_imitation_is_held_against_the_baseline_by_means_over_seeds():
    """A model is named where there are several."""
    rows = [
        ("two", "sft", 0.7), ("two", "sft", 0.9), ("two", "pg", 0.2), ("one", "sft", 0.1),
        ("one", "pg", 0.3),
    ]  # fmt: skip
    runs = pd.DataFrame(rows, columns=["model", "algorithm", "pass@1"]).assign(label="MATH")
    said = "in points, is +60.0 on MATH (two) and \N{MINUS SIGN}20.0 on MATH (one)."
    assert notes.imitation(runs).endswith(said)
    assert notes.imitation(runs[:3]).endswith("in points, is +60.0 on MATH.")


@pytest.mark.parametrize(
    ("attempts", "disturbed", "said"),
    [
        ((2, 3, 1), (0, 0, 0), "2 of 3 runs were run again; of 0 the runtime is still too long."),
        ((1, 1, 1), (1, 0, 1), "0 of 3 runs were run again; of 2 the runtime is still too long."),
        ((1, 1, 1), (0, 0, 0), ""),
    ],
)
def test_runs_that_were_disturbed_are_counted(attempts, disturbed, said):
    runs = pd.DataFrame({"attempt": attempts, "disturbed": list(map(bool, disturbed))})
    usual = {"algorithm": "pg", "no_summary": "", "hardware": "A", "commit": "b", "start": "base"}
    runs = runs.assign(**usual, accepted=[True, False, True], unwalled=[{"x"}, set(), {"y"}])
    runs = runs.assign(reasons=[{}] * 3, evaluation_reasons=[{}] * 3)
    hardware, code, *found, accepted, unsafe = notes.provenance(runs)
    assert (hardware, code) == ("Hardware: A.", "Code: commit b.")
    assert [note.partition("So ")[2] for note in found] == ([said] if said else [])
    assert accepted.startswith("Accepted: 2 of 3 results")
    assert unsafe.startswith("Unsafe: 2 of 3 runs") and "(grading.x and grading.y)" in unsafe


def test_machines_and_commits_are_named_once_and_gaps_too():
    assert notes.machines(["A", "", "A"]) == [
        "Hardware: A; not recorded. Runtimes on different hardware do not compare."
    ]
    assert notes.commits(["b" * 40, "", "b" * 40]) == [
        f"Code: commits {'b' * 12} and not recorded."
    ]
