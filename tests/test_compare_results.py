"""Two trees of results are compared bit by bit, without times."""

import pytest

from tests.compare_results import main

RUN, EVALUATION = "runs/math/tiny/pg/seed1", "evaluations/math/tiny/pg/seed1"
BEFORE = {
    f"{RUN}/model/model.safetensors": "weights",
    f"{RUN}/steps.jsonl": '{"step": 1, "loss": 0.5, "seconds": 1.0}\n',
    f"{EVALUATION}/evaluation.json": '{"counts": [1, 2], "seconds": 3}',
}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({f"{RUN}/steps.jsonl": '{"step": 1, "loss": 0.5, "seconds": 9.0}\n'}, 0),
        ({f"{RUN}/steps.jsonl": '{"step": 1, "loss": 0.6, "seconds": 1.0}\n'}, 1),
        ({f"{RUN}/model/model.safetensors": "other weights"}, 1),
        ({f"{EVALUATION}/evaluation.json": '{"counts": [1, 3], "seconds": 3}'}, 1),
        ({"data/math/train.jsonl": "{}\n"}, 1),
    ],
)
def test_only_differences_in_times_are_ignored(tmp_path, capsys, changes, status):
    for folder, files in (("before", BEFORE), ("after", BEFORE | changes)):
        for name, text in files.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    assert main([str(tmp_path / "before"), str(tmp_path / "after")]) == status
    assert all((name in capsys.readouterr().out) == bool(status) for name in changes)
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty"), str(tmp_path / "empty")]) == 1
