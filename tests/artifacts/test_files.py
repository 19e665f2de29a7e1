"""Reading and writing of JSON Lines."""

import pytest

from rapid.artifacts.files import BadFile, read_jsonl
from rapid.benchmarks.math.record import MathProblem

ROW = MathProblem(unique_id="a", problem="1+1?", answer="2", level=None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"unique_id": "b", "problem": "?"}', "answer: Field required"),
        ("{", "the line: Invalid JSON"),
    ],
)
def test_the_error_for_an_invalid_line_has_its_number_and_the_reason(tmp_path, line, reason):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{ROW.model_dump_json()}\n\n{line}\n")
    with pytest.raises(BadFile, match=rf"rows\.jsonl:3: {reason}"):
        list(read_jsonl(path, MathProblem))
