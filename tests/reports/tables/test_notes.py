"""Notes of tables, from the rows of a data frame."""

import pandas as pd
import pytest

from rapid.text import join_words
from reports.tables import notes

RUN = {
    "label": "MATH", "model": "m", "algorithm": "pg", "seed": 1, "samples": 8, "problems": 40, "temperature": 0.6,
    "top_p": 0.95, "no_summary_reason": "", "hardware": "A", "commit": "b", "start": "base", "start_seed": float("nan"),
    "attempt": 1,
    "disturbed": False, "accepted": False, "sandbox_permissions": set(), "reasons": {},
    "evaluation_reasons": {}, "no_evaluation_reason": "", "scores": {"p": (8, 4)}, "flawed": frozenset(),
}  # fmt: skip


def render_note(name: str, *rows: dict, **facts) -> str:
    """Render a note on runs that differ from RUN in these columns."""
    facts |= notes.collect_run_facts(pd.DataFrame([RUN | row for row in rows], columns=[*RUN]))
    return " ".join(notes.render_notes([name], facts))


def test_notes_name_sample_counts_and_the_smallest_step_of_accuracy():
    """The smallest step is that of the fewest problems and completions, by benchmark."""
    sizes = [("MBPP+", 4, 12), ("MBPP+", 3, 11), ("MATH", 16, 11), ("MATH", None, None)]
    rows = [dict(zip(("label", "problems", "samples"), size, strict=True)) for size in sizes]
    rows[-1]["no_evaluation_reason"] = "gone"
    assert render_note("evaluation", *rows) == (
        "Pass@k: unbiased estimate from 11 or 12 completions per problem (temperature 0.6, top-p "
        "0.95) on the test problems: 3 or 4 of MBPP+ and 16 of MATH."
    )
    # 100 / 3 and 100 / 33; 100 / 16 and 100 / 176.
    resolution = render_note("resolution", *rows)
    assert resolution.endswith(" percentage points: 33 on MBPP+ (3) and 6.2 on MATH (0.57).")
    assert render_note("evaluation", rows[-1]) == "Accuracy: no model has been evaluated."


def test_sft_note_compares_means_over_seeds_with_the_baseline():
    """Models are named where there are several."""
    rows = [
        ("two", "sft", 0.7), ("two", "sft", 0.9), ("two", "pg", 0.2), ("one", "sft", 0.1),
        ("one", "pg", 0.3),
    ]  # fmt: skip
    runs = pd.DataFrame(rows, columns=["model", "algorithm", "pass@1"]).assign(label="MATH")
    differences = [
        notes.collect_sft_facts(frame)["differences"] for frame in (runs, runs[:3], runs[:2])
    ]
    assert differences == [["+60.0 on MATH (two)", "−20.0 on MATH (one)"], ["+60.0 on MATH"], []]
    (note,) = notes.render_notes(["sft-runtime"], notes.collect_sft_facts(runs))
    assert note.endswith(f"minus PG's, in percentage points, is {join_words(differences[0])}.")


UNGRADED = {"passed": 90, "infrastructure": 2}


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"attempt": 2}, {"attempt": 3, "disturbed": True}, {}], "2 of 3 runs were repeated; 1 of 3 runs still"),
        ([{"disturbed": True}, {"disturbed": True}], "0 of 2 runs were repeated; 2 of 2 runs still"),
        ([{"accepted": True}, {}, {"accepted": True}], "that made 2 of 3 results"),
        ([{"sandbox_permissions": {"y"}}, {}, {"sandbox_permissions": {"x"}}], "Unsafe: 2 of 3 jobs"),
        ([{"sandbox_permissions": {"y"}}, {"sandbox_permissions": {"x", "y"}}], "(grading.x and grading.y)"),
        ([{"start": "sft"}, {"start": "sft"}], "the model that SFT trained with the same seed"),
        ([{"start": "sft", "start_seed": 1.0}], "the model that SFT trained with seed 1; Base is"),
        ([{"no_summary_reason": "gone"}], "No model has been trained."),
        ([{}, {"hardware": ""}], "Hardware: A; not recorded. Runtimes on different"),
        ([{"commit": "b" * 40}, {"commit": ""}], f"Code: commits {'b' * 12} and not recorded."),
        ([{}, {"reasons": UNGRADED}], ": 2 of 92 in training of PG on MATH (m, seed 1). Their"),
        ([{"evaluation_reasons": UNGRADED}], ": 2 of 92 in the evaluation of PG on MATH (m, seed 1)."),
    ],
)  # fmt: skip
def test_provenance_note_names_only_what_happened(rows, text):
    assert text in render_note("provenance", *rows)
    assert render_note("provenance", {}, {}) == "Hardware: A. Code: commit b."


def test_every_table_has_a_complete_description():
    """Each table has a caption, a label, a stub, and notes that exist."""
    document = notes.load_descriptions()
    for table in document["tables"].values():
        assert {"caption", "label", "stub", "notes"} <= table.keys()
        for note in table["notes"]:
            assert " " in note or note in document["notes"], note
