"""Reading and writing the rows that pass between stages."""

import pytest

from rapid.artifacts.files import BadRow, read_jsonl, write_jsonl, write_text
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.mbpp_plus.record import CodeProblem

ROW = MathProblem(unique_id="a", problem="1+1?", answer="2", level=None)


def test_rows_come_back_as_they_were_written(tmp_path):
    write_jsonl(tmp_path / "rows.jsonl", [ROW, ROW])
    assert list(read_jsonl(tmp_path / "rows.jsonl", MathProblem)) == [ROW, ROW]


def test_a_wrong_line_is_named_with_its_field(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(ROW.model_dump_json() + '\n\n{"unique_id": "b", "problem": "?"}\n')
    with pytest.raises(BadRow, match=r"rows\.jsonl:3: answer: Field required"):
        list(read_jsonl(path, MathProblem))


def test_a_line_that_is_not_json_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("{\n")
    with pytest.raises(BadRow, match=r"rows\.jsonl:1: the line: Invalid JSON"):
        list(read_jsonl(path, MathProblem))


def test_a_write_leaves_nothing_beside_it(tmp_path):
    write_text(tmp_path / "new" / "file", "text")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_the_release_s_empty_plus_inputs():
    row = {"task_id": "Mbpp/793", "prompt": "", "entry_point": "f", "canonical_solution": ""}
    assert CodeProblem(**row, base_input=[[1]], plus_input={}).plus_input == []
