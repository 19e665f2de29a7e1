"""Notes say just what the rows of a data frame give."""

import pandas as pd
import pytest

from rapid.text import join_words
from reports.tables import notes

RUN = {
    "label": "MATH", "model": "m", "algorithm": "pg", "seed": 1, "samples": 8, "problems": 40, "temperature": 0.6,
    "top_p": 0.95, "no_summary": "", "hardware": "A", "commit": "b", "start": "base", "attempt": 1,
    "disturbed": False, "accepted": False, "unwalled": set(), "reasons": {},
    "evaluation_reasons": {}, "no_evaluation": "", "scores": {"p": (8, 4)},
}  # fmt: skip


def write(name: str, *rows: dict, **facts) -> str:
    """Return a note on runs that differ from RUN in these columns."""
    facts |= notes.run_facts(pd.DataFrame([RUN | row for row in rows], columns=[*RUN]))
    return " ".join(notes.render_notes([name], facts))


def test_what_accuracy_is_from_and_the_least_that_it_can_differ_by():
    """That is by the fewest problems and completions; benchmarks are in the order of the runs."""
    sizes = [("MBPP+", 4, 12), ("MBPP+", 3, 11), ("MATH", 16, 11), ("MATH", None, None)]
    rows = [dict(zip(("label", "problems", "samples"), size, strict=True)) for size in sizes]
    rows[-1]["no_evaluation"] = "gone"
    assert write("evaluation", *rows) == (
        "Pass@k: unbiased estimate from 11 or 12 completions per problem (temperature 0.6, top-p "
        "0.95) on the test problems: 3 or 4 of MBPP+ and 16 of MATH."
    )
    # 100 / 3 and 100 / 33; 100 / 16 and 100 / 176.
    resolution = write("resolution", *rows)
    assert resolution.endswith(" points of one run: 33 of MBPP+ (3) and 6.2 of MATH (0.57).")
    assert write("evaluation", rows[-1]) == "Accuracy: no model has been evaluated."


def test_accuracies_without_scores_or_their_numbers_are_counted():
    stated, unstated = {"scores": {}}, {"scores": {}, "problems": None, "samples": None}
    facts = {"seed_count": 3, "figure": "Pass@1", "unranked": []}
    text = "have no scores by problem: they are not tested."
    assert f"Accuracies of 2 of 3 runs {text}" in write("noise", {}, stated, unstated, **facts)
    assert text not in write("noise", {}, {}, **facts)
    note = "Pass@k of 1 of 2 runs: it is not stated over how many problems and completions."
    assert write("evaluation", {}, unstated).endswith(f"on the test problems: 40 of MATH. {note}")
    assert write("evaluation", unstated, unstated) == note.replace("1 of", "2 of")


def test_imitation_is_held_against_the_baseline_by_means_over_seeds():
    """A model is named where there are several."""
    rows = [
        ("two", "sft", 0.7), ("two", "sft", 0.9), ("two", "pg", 0.2), ("one", "sft", 0.1),
        ("one", "pg", 0.3),
    ]  # fmt: skip
    runs = pd.DataFrame(rows, columns=["model", "algorithm", "pass@1"]).assign(label="MATH")
    gaps = [notes.imitation_facts(of)["gaps"] for of in (runs, runs[:3], runs[:2])]
    assert gaps == [["+60.0 on MATH (two)", "−20.0 on MATH (one)"], ["+60.0 on MATH"], []]
    (note,) = notes.render_notes(["imitation"], notes.imitation_facts(runs))
    assert note.endswith(f"Here its Pass@1 less PG's, in points, is {join_words(gaps[0])}.")


DIED = {"passed": 90, "infrastructure": 2}


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"attempt": 2}, {"attempt": 3, "disturbed": True}, {}], "2 of 3 runs were run again; of 1 the"),
        ([{"disturbed": True}, {"disturbed": True}], "0 of 2 runs were run again; of 2 the"),
        ([{"accepted": True}, {}, {"accepted": True}], "Accepted: 2 of 3 results"),
        ([{"unwalled": {"y"}}, {}, {"unwalled": {"x"}}], "Unsafe: 2 of 3 runs"),
        ([{"unwalled": {"y"}}, {"unwalled": {"x", "y"}}], "(grading.x and grading.y)"),
        ([{"start": "sft"}, {"start": "sft"}], "the model that SFT made with the same seed"),
        ([{"no_summary": "gone"}], "No model has been trained."),
        ([{}, {"hardware": ""}], "Hardware: A; not recorded. Runtimes on different"),
        ([{"commit": "b" * 40}, {"commit": ""}], f"Code: commits {'b' * 12} and not recorded."),
        ([{}, {"reasons": DIED}], ": 2 of 92 in training of PG on MATH (m, seed 1). Their"),
        ([{"evaluation_reasons": DIED}], ": 2 of 92 in the evaluation of PG on MATH (m, seed 1)."),
    ],
)  # fmt: skip
def test_what_was_amiss_is_said_and_nothing_else(rows, text):
    assert text in write("provenance", *rows)
    assert write("provenance", {}, {}) == "Hardware: A. Code: commit b."


def test_every_table_is_described():
    """By templates that can be read, and notes that are there."""
    document = notes.load_descriptions()
    for table in document["tables"].values():
        assert {"caption", "label", "stub", "notes"} <= table.keys()
        for note in table["notes"]:
            assert " " in note or note in document["notes"], note
