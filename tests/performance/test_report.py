"""The page is computed from the figures of the summary alone."""

import json

import pytest

from performance import growth, report, results, summary
from performance.expectations import expectations
from tests.performance.test_summary import FLOOR, MEMORY, PAIR, VERDICTS, sample

SETTING = {"H": 4, "n_step": 16, "group": 4, "micro_batch": 8, "length": 80, "N_inference": 64}
SETTING["fixed_length"] = False
ROW = {"model": "a model", "workload": "tiny", "rate": 0.1, **SETTING}
SAVED = {"plain": PAIR["stock"], "saved": PAIR["rapid"]}
ALONE, SLOWER = {"rapid": PAIR["rapid"]}, {"rapid": PAIR["stock"]}
KINDS = dict.fromkeys(("products", "attention", "random", "operators", "outside"), 1.0)


@pytest.fixture
def documents() -> dict[str, dict]:
    floors = {"rapid": [sample(1.0, floor=FLOOR)] * 3}
    saving = {"saving": "share_prefill", "wait_ms": 5.0}
    proofs = {"benchmark": "minif2f", "graded": "proofs"}
    rows = {
        "a": [ROW | summary.timing(PAIR)],
        "b": [ROW | {"H": h} | summary.timing(some) for h, some in ((1, SLOWER), (4, ALONE))],
        "c": [ROW | saving | summary.timing(SAVED)],
        "d": [ROW | {"varied": name} | summary.timing(PAIR) for name in ("length", "N_inference")],
        "e": [ROW | summary.timing(floors)],
        "f": [ROW | summary.memory(MEMORY)],
        "g": [proofs | {"kind": kind} | summary.verdicts(one) for kind, one in VERDICTS.items()],
        "h": [
            ROW | {"varied": name, "parameters": 1e6} | {name: value} | summary.timing(ALONE)
            for name, values in (("width", (64, 128)), ("processes", (1, 2)))
            for value in values
        ],
        "i": [ROW | {"trainer": "rapid"} | summary.operators([KINDS])],
    }
    common = {
        "date": "2026-01-01T00:00:00+00:00",
        "commit": "0123456789abcdef+dirty",
        "hardware": "a processor",
        "versions": {"python": "3.11"},
        "options": {"repeats": 3},
        "missing": [],
    }
    return {part: common | {"rows": some, "missing": []} for part, some in rows.items()}


def last_row(documents, part: str) -> str:
    return report.section(part, documents[part]["rows"]).splitlines()[-1]


def test_a_spread_has_its_unit_and_fitting_digits():
    assert f"{report.Spread([3, 2, 4]):1x}" == "3.0x (2.0–4.0)"
    assert f"{report.Spread([0.034, 0.03, 0.04]):1%}" == "3.4% (3.0–4.0)"
    spreads = [report.Spread([value] * 3) for value in (123.4, 12.34, 1.234)]
    assert [f"{one}" for one in spreads] == [
        "123 (123–123)",
        "12.3 (12.3–12.3)",
        "1.23 (1.23–1.23)",
    ]


def test_two_sides_stand_beside_one_another(documents):
    pair = "34.4 (32.8–35.9) | 15.6 (15.6–15.6) | 2.20x (2.10–2.30)"
    assert last_row(documents, "a") == f"| a model | 16, 8 | 10% | 34% | {pair} | 30.0 / 30.0 |"
    assert last_row(documents, "c") == f"| share\\_prefill | 5 ms | {pair} |"
    assert last_row(documents, "d") == f"| 64 | {pair} |"


def test_real_rewards_have_the_solve_rate_that_was_found(documents):
    documents["a"]["rows"][0]["rate"] = None
    assert "| real grader (10%) |" in last_row(documents, "a")


def test_verdicts_have_rates_and_latencies(documents):
    expected = "| proofs | mistaken | 2 | 50% | 40.0 (40.0–40.0) | 25.0 | 29.5 |"
    assert last_row(documents, "g") == expected


def test_expectations_hold_or_do_not_with_the_number(documents):
    found = expectations(documents)
    fast, *_, floor, _, memory = found
    assert [one.holds for one in found] == [True, True, True, True, False, True, True]
    assert "2.20x" in fast.found and "850 against 900 MB" in memory.found
    assert "2.00x" in floor.found


def test_an_h_that_saves_nothing_is_named(documents):
    documents["b"]["rows"].append(ROW | {"H": 8} | summary.timing(SLOWER | {"rapid": [sample(9)]}))
    assert "1 of 2 rows; least: 0.24x (tiny, H=8" in expectations(documents)[3].found


def test_ideals_are_of_what_was_measured_first(documents):
    first, second = (row | {"H": h} for row, h in zip(documents["b"]["rows"], (1, 4), strict=True))
    cost, sampling = first["seconds_rapid"][0], first["sampling"]
    assert growth.ideal("H", first, second) == pytest.approx(cost - 0.75 * sampling)
    one, two = documents["h"]["rows"][2:]
    assert growth.ideal("processes", one, two) == one["seconds_rapid"][0] / 2
    wide = one | {"parameters": 3e6, "length": 160}
    assert growth.ideal("width", one, wide) == 3 * one["seconds_rapid"][0]
    assert growth.ideal("length", one, wide) == 2 * one["seconds_rapid"][0]


@pytest.mark.parametrize(
    ("part", "row", "holds"),
    [
        ("a", {"rate": 1.0}, [False, False, True, True, False, True, True]),
        ("d", {"varied": "length"}, [False, False, True, True, False, True, True]),
        ("d", {"varied": "length", "H": 8}, [True, False, True, True, False, True, True]),
        ("c", {"saving": "pack"}, [True, True, False, True, False, True, True]),
    ],
)
def test_every_row_of_every_part_counts(documents, part, row, holds):
    sides = ("plain", "saved") if part == "c" else ("stock", "rapid")
    slow = dict(zip(sides, ([sample(0.9)], [sample(1.0)]), strict=True))
    documents[part]["rows"].append(ROW | row | summary.timing(slow))
    found = expectations(documents)
    assert [one.holds for one in found] == holds
    assert all("0.90x" in one.found for one in found[:3] if not one.holds)


def test_time_in_no_phase_and_memory_are_held_against_their_bounds(documents):
    much_else = sample(1.0, phases={"sampling": 0.1, "backpropagation": 0.47})
    documents["b"]["rows"] = [ROW | summary.timing({"rapid": [much_else]})]
    swapped = {"stock": MEMORY["rapid"], "rapid": MEMORY["stock"]}
    documents["f"]["rows"] = [ROW | summary.memory(swapped)]
    found = [one.holds for one in expectations(documents)]
    assert found == [True, True, True, None, False, False, False]


def test_what_was_not_measured_is_said(documents):
    assert [one.holds for one in expectations({})] == [None] * 7
    documents["a"]["missing"] = ["smollm2: no network"]
    assert "Not measured: smollm2: no network." in report.render(documents)


def test_the_page_is_written_from_the_summary_of_a_folder(documents, tmp_path, capsys):
    results.write_summary(tmp_path, documents)
    assert results.read(tmp_path) == documents
    report.main([str(tmp_path)])
    page = (tmp_path / "README.md").read_text()
    assert all(f"## ({part})" in page for part in "abcdefghi")
    assert "0123456789+dirty" in page
    lines = page.splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("| ---")]
    assert len(rules) == 1 + 11 + 1  # expectations, parts of which two have two tables, provenance
    assert all(lines[number].count("|") == lines[number - 1].count("|") for number in rules)
    figure = (tmp_path / "growth.svg").read_text()
    assert "width of the model" in figure and figure == growth.draw(documents)
    assert "holds: " in capsys.readouterr().out


def test_the_page_that_is_kept_is_that_of_the_summary_that_is_kept():
    page = (results.FOLDER / "README.md").read_text(encoding="utf-8")
    assert report.render(results.read(results.FOLDER)) == page


def test_a_part_replaces_its_figures_and_keeps_its_samples_apart(documents, tmp_path):
    results.write_summary(tmp_path, documents)
    row = documents["b"]["rows"][0]
    results.write(tmp_path, "b", [row | {"H": 99, "samples": ALONE}], ["why"], {"repeats": 1})
    kept = results.read(tmp_path)
    assert kept["b"]["rows"] == [row | {"H": 99}] and kept["b"]["missing"] == ["why"]
    assert {part: kept[part] for part in "acdefghi"} == {
        part: documents[part] for part in "acdefghi"
    }
    [raw] = json.loads((tmp_path / "samples" / "b.json").read_text())["rows"]
    assert raw["samples"] == ALONE


def test_quick_figures_are_not_judged(documents, tmp_path, capsys):
    for document in documents.values():
        document["options"] = {"quick": True}
    results.write_summary(tmp_path, documents)
    report.main([str(tmp_path)])
    assert "not judged: quick figures" in (said := capsys.readouterr().out) and "holds" not in said
    page = (tmp_path / "README.md").read_text()
    assert "Not judged: quick figures" in page and "**does not hold**" not in page
