"""Figures are computed from samples; the page and its expectations from figures."""

import pytest

from performance import report, results, steps, summary
from performance.expectations import check_expectations
from performance.parts import PARTS

SETTING = {"H": 4, "n_step": 16, "group": 4, "micro_batch": 8, "length": 80, "N_inference": 64}
ROW = {"model": "a model", "workload": "tiny", "solve_rate": 0.1, "fixed_length": False, **SETTING}
MEMORY = {
    "trl": [{"peak": 900.0, "before_training": 800.0}],
    "rapid": [{"peak": 850.0, "before_training": 800.0}],
}
VERDICTS = {
    "correct": [{"latencies": [0.1], "rewarded": 1}],
    "mistaken": [
        {"latencies": [0.02, 0.03], "rewarded": 1},
        {"latencies": [0.01, 0.01], "rewarded": 1},
    ],
}


def make_sample(seconds: float, **figures) -> dict:
    """Return a sample of 64 completions, with half of the time in sampling."""
    return {
        "seconds": seconds,
        "cpu_seconds": seconds,
        "completions": 64,
        "length": 30.0,
        "rewarded_share": 0.1,
        "rewarded_group_share": 0.34,
        "optimizer": 0.01 * seconds,
        "log_mu": 0.02 * seconds,
        "phases": {"sampling": 0.5 * seconds, "backpropagation": 0.47 * seconds, "other": 0.02},
        "memory": 500.0,
    } | figures


PAIR = {
    "trl": [make_sample(2.0), make_sample(2.2), make_sample(2.4)],
    "rapid": [make_sample(1.0)] * 3,
}
# The other trainers take 3, 2 and 1.5 times RapidTrainer's time.
FOUR_TRAINERS = {
    name: [make_sample(factor)] * 3
    for name, factor in (("trl", 3.0), ("trl_on_policy", 2.0), ("policy_gradient", 1.5))
}
FOUR_TRAINERS |= {"rapid": PAIR["rapid"]}
REFERENCE_TIMES = {"sampling_alone": 7.5, "training_alone": 7.0}
FAST, SLOW = {"rapid": PAIR["rapid"]}, {"rapid": PAIR["trl"]}
POLICY_GRADIENT = {"policy_gradient": FOUR_TRAINERS["policy_gradient"], "rapid": PAIR["rapid"]}
BUSY = {"busy_processes": 3, "wait_policy": "passive"}
PROOFS = {"solve_rate": None, "benchmark": "minif2f", "grading_workers": 8}


def make_row(samples: dict, **labels) -> dict:
    """Return a row with the figures of these samples."""
    *others, last = samples
    pairs = [{name: samples[name], last: samples[last]} for name in others]
    return ROW | labels | summary.summarize_timing(pairs or [samples])


@pytest.fixture
def documents() -> dict[str, dict]:
    labels = {"benchmark": "minif2f", "completions": "proofs"}
    rows = {
        "a": [make_row(PAIR)],
        "b": [make_row(SLOW, H=1), make_row(FAST, H=4)],
        "c": [make_row(FOUR_TRAINERS)],
        "e": [make_row(FAST, experiment="H=4", **REFERENCE_TIMES)],
        "d": [make_row(PAIR, varied=name, **REFERENCE_TIMES) for name in ("length", "N_inference")],
        "f": [ROW | summary.summarize_memory(MEMORY)],
        "g": [
            labels | {"kind": kind} | summary.summarize_verdicts(samples)
            for kind, samples in VERDICTS.items()
        ],
        "h": [make_row(POLICY_GRADIENT, **PROOFS)],
        "i": [
            make_row({"policy_gradient": [make_sample(1.0)]}, busy_processes=0, wait_policy=""),
            make_row({"policy_gradient": [make_sample(2.9)]}, **BUSY),
        ],
        "k": [make_row(PAIR | {"rapid": [make_sample(1.0, memory=400.0)] * 3})],
    }
    source = {
        "date": "2026-01-01T00:00:00+00:00",
        "commit": "0123456789abcdef+dirty",
        "hardware": "a processor",
        "versions": {"python": "3.11"},
    }
    return {
        part: source | {"options": {"repeats": 3}, "missing": [], "rows": part_rows}
        for part, part_rows in rows.items()
    }


def test_spread_is_printed_with_quartiles_unit_and_suitable_digits():
    assert summary.compute_quartiles([1, 2, 3, 4, 100]) == [3, 2, 4]
    assert f"{report.Quartiles([3, 2, 4]):1x}" == "3.0x (2.0–4.0)"
    assert f"{report.Quartiles([0.034, 0.03, 0.04]):1%}" == "3.4% (3.0–4.0)"
    spreads = [f"{report.Quartiles([value] * 3)}" for value in (123.4, 12.34, 1.234)]
    assert spreads == ["123 (123–123)", "12.3 (12.3–12.3)", "1.23 (1.23–1.23)"]


@pytest.mark.parametrize(
    ("part", "cells"),
    [
        ("a", "16, 8 | 10% | 34% | SECONDS | 2.20x (2.10–2.30) | 30.0 / 30.0"),
        ("b", "4 | 16 | 15.6 (15.6–15.6) | 7.81 | 0.00 | 0.00 | 7.34 | 0.47 | 0.16 | 3.0% (3.0–3.0)"),
        (
            "c",
            "4 | 16 | 80 | 10% | 46.9 (46.9–46.9) | 31.2 (31.2–31.2) | 23.4 (23.4–23.4) | "
            "15.6 (15.6–15.6) | 3.00x (3.00–3.00) | 2.00x (2.00–2.00) | 1.50x (1.50–1.50)",
        ),
        ("e", "H=4 | 15.6 (15.6–15.6) | 7.8 | 7.5 | 0.0 | 0.3 | 7.3 | 7.0 | 0.2 | 0.5"),
        ("d", "64 | SECONDS | 2.20x (2.10–2.30)"),
        ("f", "900 (900–900) | 850 (850–850) | 100 (100–100) | 50.0 (50.0–50.0)"),
        ("g", "proofs | mistaken | 4 | 50% | 70.0 (55.0–85.0) | 15.0 | 28.5"),
        (
            "h",
            "minif2f | 10% | 8 | 23.4 (23.4–23.4) | 11.7 | 0.0 | 15.6 (15.6–15.6) | 7.8 | 0.0 | "
            "33% (33–33)",
        ),
        ("i", "3 | passive | 45.3 (45.3–45.3) | 23 | 21"),
        ("k", "4 | 10% | 29.1 (27.9–30.5) / 64.0 (64.0–64.0) | 873 / 1,920 | 2.20x (2.10–2.30) | 500 / 400"),
    ],
)  # fmt: skip
def test_row_has_the_cells_of_its_part(documents, part, cells):
    """Speedups are medians of ratios within pairs; "other" is the time outside of all phases.

    Percentiles of latencies are over all verdicts; rates of verdicts are computed for each sample.
    """
    last_row = report.render_section(part, documents[part]["rows"]).splitlines()[-1]
    seconds = "34.4 (32.8–35.9) | 15.6 (15.6–15.6)"  # per 1,000 completions
    assert last_row.removeprefix("| a model ") == f"| {cells} |".replace("SECONDS", seconds)


def test_row_of_the_real_grader_shows_the_measured_solve_rate(documents):
    documents["a"]["rows"][0]["solve_rate"] = None
    assert "| real grader (10%) |" in report.render_section("a", documents["a"]["rows"])


def test_results_of_expectations_have_a_figure(documents):
    outcomes = check_expectations(documents)
    assert [result.holds for result in outcomes] == [True] * 12
    assert "4 of 4 rows hold; the worst: 2.20x (tiny, H=4" in outcomes[0].measured
    assert "0.94x" in outcomes[4].measured
    assert [result.holds for result in check_expectations({})] == [None] * 12


@pytest.mark.parametrize(
    ("part", "row", "failing", "figure"),
    [
        ("a", make_row({"trl": [make_sample(0.9)], "rapid": [make_sample(1.0)]}), {0, 1}, "0.90x"),
        ("d", make_row({"trl": [make_sample(0.9)], "rapid": [make_sample(1.0)]}, H=8), {1}, "0.90x"),
        ("k", make_row({"trl": [make_sample(0.9)], "rapid": [make_sample(1.0)]}), {0, 1}, "0.90x"),
        ("k", make_row(PAIR | {"rapid": [make_sample(1.0, memory=505.0)] * 3}), {4}, "1.01x"),
        ("b", make_row({"rapid": [make_sample(9)]}, H=8), {2}, "0.24x (tiny, H=8, N_step=16"),
        ("b", make_row({"rapid": [make_sample(1.0, phases={"sampling": 0.9})]}), {3}, "10.0%"),
        ("f", ROW | summary.summarize_memory(dict(zip(MEMORY, list(MEMORY.values())[::-1], strict=True))), {4}, "1.06x"),
        ("c", make_row(FOUR_TRAINERS | {"trl": [make_sample(1.9)] * 3}), {5, 7}, "1.90x"),
        ("c", make_row(FOUR_TRAINERS | {"trl_on_policy": [make_sample(1.9)] * 3}), {6}, "1.90x"),
        ("c", make_row(FOUR_TRAINERS | {"policy_gradient": [make_sample(1.4)] * 3}), {8}, "1.40x"),
        ("h", make_row(POLICY_GRADIENT | {"policy_gradient": [make_sample(1.4)] * 3}, **PROOFS), {9}, "29% (tiny, H=4, N_step=16, real grader of minif2f, 8 grading workers"),
        ("e", make_row(FAST, **REFERENCE_TIMES | {"training_alone": 6.0}), {11}, "1.22"),
        ("i", make_row({"policy_gradient": [make_sample(3.1)]}, **BUSY), {10}, "3.10x"),
    ],
)  # fmt: skip
def test_expectations_cover_every_row_of_every_part(documents, part, row, failing, figure):
    documents[part]["rows"].append(row)
    outcomes = check_expectations(documents)
    assert {number for number, result in enumerate(outcomes) if not result.holds} == failing
    assert all(f"the others: {figure}" in outcomes[number].measured for number in failing)


def test_page_is_written_from_the_summary_of_a_folder(documents, tmp_path, capsys):
    documents["a"]["missing"] = ["smollm2: no network"]
    results.write_summary(tmp_path, documents)
    assert results.read_parts(tmp_path) == documents
    report.main([str(tmp_path)])
    page = (tmp_path / "README.md").read_text()
    assert all(f"## ({part})" in page for part in documents)
    assert "0123456789+dirty" in page and "Not measured: smollm2: no network." in page
    lines = page.splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("| ---")]
    assert len(rules) == 1 + 11 + 1  # expectations, ten parts (one with two tables), provenance
    assert all(lines[number].count("|") == lines[number - 1].count("|") for number in rules)
    assert "holds: " in capsys.readouterr().out


@pytest.mark.parametrize("folder", [results.FOLDER, results.FOLDER / "gpu"])
def test_committed_page_is_rendered_from_the_committed_summary(folder):
    documents = results.read_parts(folder)
    assert documents.keys() <= PARTS.keys()
    assert report.render_page(documents) == (folder / "README.md").read_text(encoding="utf-8")


def test_expectations_are_not_checked_with_quick_figures(documents, tmp_path, capsys):
    for document in documents.values():
        document["options"] = {"quick": True}
    results.write_summary(tmp_path, documents)
    report.main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert report.NOT_CHECKED in printed and "holds" not in printed
    page = (tmp_path / "README.md").read_text()
    assert report.NOT_CHECKED in page and "**does not hold**" not in page


@pytest.mark.parametrize("path", [steps.PLANNED_MEMORY, steps.MICRO_BATCHES])
def test_tables_of_steps_are_written_as_they_are_read(path, tmp_path, monkeypatch):
    tables = steps.read_tables(path)
    monkeypatch.setattr(results, "describe_hardware_in_child", lambda: tables["hardware"])
    steps.write_tables(tmp_path / path.name, tables)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()
