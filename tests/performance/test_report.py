"""The page is computed from the raw samples of result files."""

import json

import pytest

from performance import report
from performance.expectations import expectations
from performance.results import read
from performance.summary import middle, phase


def sample(seconds: float, **others) -> dict:
    """64 completions in some seconds, of which a quarter each in sampling and backpropagation."""
    return {
        "seconds": seconds,
        "cpu_seconds": seconds,
        "steps": 4,
        "completions": 64,
        "length": 30.0,
        "solved": 0.1,
        "alive": 0.34,
        "optimizer": 0.01 * seconds,
        "phases": {"sampling": 0.5 * seconds, "backpropagation": 0.47 * seconds, "other": 0.02},
    } | others


SETTING = {"H": 4, "n_step": 16, "group": 4, "micro_batch": 8, "length": 80, "fixed_length": False}
ROW = {"model": "a model", "workload": "tiny", "rate": 0.1, "setting": SETTING}
PAIR = {"stock": [sample(2.0), sample(2.2), sample(2.4)], "rapid": [sample(1.0) for _ in range(3)]}
SAVED = {"plain": PAIR["stock"], "saved": PAIR["rapid"]}
FLOOR = {
    "sampler": {"seconds": 0.4, "length": 30.0},
    "operations": {"least": 1e9, "all": 6e9},
    "rate": 1e10,
}
MEMORY = {
    "stock": [{"peak": 900.0, "before": 800.0}],
    "rapid": [{"peak": 850.0, "before": 800.0}],
}

VERDICTS = {
    "correct": [{"latencies": [0.1] * 19 + [0.5], "rewarded": 20}] * 3,
    "mistaken": [{"latencies": [0.02, 0.03], "rewarded": 1}],
}


@pytest.fixture
def documents() -> dict[str, dict]:
    rows = {
        "a": [ROW | {"reward": "set", "sides": PAIR}],
        "b": [ROW | {"sides": {"rapid": PAIR["rapid"]}}],
        "c": [ROW | {"saving": "share_prefill", "wait": 0.005, "sides": SAVED}],
        "d": [ROW | {"varied": "length", "sides": PAIR}],
        "e": [ROW | {"sides": {"rapid": PAIR["rapid"]}, "floors": [FLOOR] * 3}],
        "f": [ROW | {"sides": MEMORY}],
        "g": [{"benchmark": "minif2f", "sides": VERDICTS}],
    }
    common = {
        "date": "2026-01-01T00:00:00+00:00",
        "commit": "0123456789abcdef+dirty",
        "hardware": "a processor",
        "versions": {"python": "3.11"},
        "options": {"repeats": 3},
        "missing": [],
    }
    made = {part: common | {"part": part, "rows": some} for part, some in rows.items()}
    return json.loads(json.dumps(made))  # nothing in it is shared


def test_a_median_stands_with_its_quartiles():
    assert middle([1, 2, 3, 4, 100]).text(1, "x") == "3.0x (2.0–4.0)"
    assert middle([7.0]).text(0) == "7 (7–7)"
    with pytest.raises(ValueError, match="no values"):
        middle([])


def test_other_is_all_that_is_in_no_phase():
    assert phase(sample(1.0), "other") == pytest.approx(0.03)
    assert phase(sample(1.0), "grading") == 0


def test_speed_is_the_median_ratio_within_pairs(documents):
    row = report.SECTIONS["a"](documents["a"]).splitlines()[-1]
    assert "2.20x (2.10–2.30)" in row
    assert "34.4 (32.8–35.9)" in row and "15.6 (15.6–15.6)" in row  # seconds per 1,000


def test_a_floor_is_the_sampler_and_the_matrix_products(documents):
    found = report.floors(documents["e"]["rows"][0])
    assert found["to_least"] == pytest.approx([1.0 / (0.4 + 0.1)] * 3)
    assert found["to_all"] == pytest.approx([1.0 / (0.4 + 0.6)] * 3)


def test_latencies_are_of_all_samples_and_rates_of_each(documents):
    correct, mistaken = report.SECTIONS["g"](documents["g"]).splitlines()[-2:]
    assert correct == "| proofs | correct | 60 | 100% | 8.33 (8.33–8.33) | 100.0 | 120.0 |"
    assert mistaken == "| proofs | mistaken | 2 | 50% | 40.0 (40.0–40.0) | 25.0 | 29.5 |"


def test_expectations_hold_or_do_not_with_the_number(documents):
    found = expectations(documents)
    assert [one.holds for one in found] == [True] * 4
    assert "2.20x" in found[0].found and "850 against 900 MB" in found[3].found
    slow = {"stock": [sample(0.9)], "rapid": [sample(1.0)]}
    documents["a"]["rows"].append(ROW | {"rate": 1.0, "reward": "set", "sides": slow})
    documents["b"]["rows"][0]["sides"]["rapid"][0]["phases"]["sampling"] = 0.1
    documents["b"]["rows"][0]["sides"]["rapid"][1:] = []
    documents["f"]["rows"][0]["sides"] = {"stock": MEMORY["rapid"], "rapid": MEMORY["stock"]}
    found = expectations(documents)
    assert [one.holds for one in found] == [True, False, False, False]
    assert "0.90x" in found[1].found and "solve rate 100%" in found[1].found


def test_what_was_not_measured_is_said(documents):
    assert [one.holds for one in expectations({})] == [None] * 4
    documents["a"]["missing"] = ["smollm2: no network"]
    assert "Not measured: smollm2: no network." in report.render(documents)


def test_the_page_is_written_from_the_files_of_a_folder(documents, tmp_path, capsys):
    for part, document in documents.items():
        (tmp_path / f"{part}.json").write_text(json.dumps(document))
    assert read(tmp_path) == documents
    report.main([str(tmp_path)])
    page = (tmp_path / "README.md").read_text()
    assert all(f"## ({part})" in page for part in "abcdefg")
    assert "0123456789+dirty" in page
    widths = [line.count("|") for line in page.splitlines() if line.startswith("| ---")]
    heads = [
        page.splitlines()[number - 1].count("|")
        for number, line in enumerate(page.splitlines())
        if line.startswith("| ---")
    ]
    assert widths == heads
    assert "holds: " in capsys.readouterr().out
