"""Results are compared bit by bit, but for times."""

import json
from shutil import copytree

import pytest

from tests.compare_results import main


@pytest.fixture
def trees(tmp_path):
    """Two trees with a run each, which took another time."""
    before, after = tmp_path / "before", tmp_path / "after"
    run = before / "runs/math/tiny/pg/seed1"
    (run / "model").mkdir(parents=True)
    (run / "model/model.safetensors").write_bytes(b"weights")
    (run / "steps.jsonl").write_text('{"step": 1, "loss": 0.5, "seconds": 1.0}\n')
    evaluation = before / "evaluations/math/tiny/pg/seed1"
    evaluation.mkdir(parents=True)
    (evaluation / "evaluation.json").write_text(json.dumps({"counts": [1, 2], "seconds": 3}))
    copytree(before, after)
    (after / run.relative_to(before) / "steps.jsonl").write_text(
        '{"step": 1, "loss": 0.5, "seconds": 9.0}\n'
    )
    return before, after


def test_times_may_differ(trees, capsys):
    assert main([*map(str, trees)]) == 0
    assert "| **/model.safetensors | 1 | 0 | 0 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("runs/math/tiny/pg/seed1/model/model.safetensors", "other weights"),
        ("runs/math/tiny/pg/seed1/steps.jsonl", '{"step": 1, "loss": 0.6, "seconds": 1.0}\n'),
        ("evaluations/math/tiny/pg/seed1/evaluation.json", '{"counts": [1, 3], "seconds": 3}'),
        ("data/math/train.jsonl", "{}\n"),
    ],
)
def test_nothing_else_may(trees, file, text, capsys):
    path = trees[1] / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert main([*map(str, trees)]) == 1
    assert file in capsys.readouterr().out


def test_trees_without_results_are_not_equal(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty"), str(tmp_path / "empty")]) == 1
    assert "has no results" in capsys.readouterr().out
