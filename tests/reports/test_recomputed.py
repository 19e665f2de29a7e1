"""The tables of results against an independent recomputation from the raw files."""

import json

import pytest

from rapid.config.params import load
from tests.recompute import Results, compare_all, read_printed
from tests.reports.conftest import RunFiles, small_values, write_report

COUNTS = {1: 8 * 5, 2: 2 * 4 * 3, 3: 2 * 7, 4: 3 * 4, 8: 2 * 5, 9: 8 * 3, 10: 7 * 2}


@pytest.fixture(scope="module", params=[6, pytest.param(2, marks=pytest.mark.slow)])
def experiment(request, tmp_path_factory):
    """Folder and params.yaml of an experiment with two seeds, or with six, which allow ties."""
    root, values = tmp_path_factory.mktemp("recomputed"), small_values()
    values["tables"]["main"]["seeds"] = [*range(request.param)]
    values["tables"]["families"]["seeds"] = [*range(request.param - 1)]
    params, runs = load(values), RunFiles(root)
    runs.write_all(params)
    slow = root / "runs/math/tiny_qwen/dapo/seed1/summary.json"
    runs.edit(slow, lambda document: document.update(attempt=2, disturbed=True))
    for name in ("pg", "rapid-H2"):
        moved = root / f"runs/mbpp_plus/tiny_qwen/{name}/seed1/summary.json"
        runs.edit(moved, lambda document: document.update(hardware="another processor"))
    write_report(values, root)
    return root, params.model_dump()


def test_all_formats_equal_the_recomputation(experiment):
    root, params = experiment
    differing, count = compare_all(root, params, root / "out")
    assert not differing
    printed = read_printed(root / "out")["text"]
    for number, cells in COUNTS.items():
        assert sum(key[0] == number for key in printed) == cells
    assert count == len(printed) > sum(COUNTS.values())
    seeds = len(params["tables"]["main"]["seeds"])
    assert any(cell.tied for cell in printed.values()) == (seeds >= 5)


def test_disturbed_runtime_is_shown_and_not_ranked(experiment):
    root, params = experiment
    row = ["base", *params["tables"]["main"]["algorithms"]].index("dapo")
    cell = Results(root, params).compute_cells()[1, row, "MATH (made): Runtime"]
    assert cell.text.endswith("s") or cell.text.endswith("min")
    assert not cell.mark and not cell.tied


def test_changed_score_is_found_in_every_format(experiment):
    root, params = experiment
    path = root / "evaluations/mbpp_plus/tiny_qwen/pg/seed0/evaluation.json"
    text = path.read_text()
    document = json.loads(text)
    score = document["scores"][-1]
    score["correct"] = 0 if score["correct"] > 4 else 8
    try:
        path.write_text(json.dumps(document))
        differing, _ = compare_all(root, params, root / "out")
    finally:
        path.write_text(text)
    for form in ("text", "TeX", "HTML"):
        assert any(
            line.startswith(f"{form}, Table 1, row 5, MBPP+ (made): Pass@1") for line in differing
        )
        assert any(line.startswith(f"{form}, Table 8,") for line in differing)
        assert any(line.startswith(f"{form}, Table 9, row 5,") for line in differing)
    assert not any(", Table 10," in line for line in differing)
