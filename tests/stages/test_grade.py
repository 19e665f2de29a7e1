"""`rapid grade`: verdicts of completions, and errors for unusable files."""

import gzip
import json

import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.cli import run
from rapid.grading.verdicts import WRONG_ANSWER, build_verdict
from rapid.stages.grade import GradingResult

PROBLEMS = {
    "mbpp_plus": [
        {
            "task_id": f"Mbpp/{name}",
            "prompt": '"""Add two numbers."""\n',
            "entry_point": name,
            "canonical_solution": f"\ndef {name}(a, b):\n    return a + b\n",
            "base_input": [[1, 2]],
            "plus_input": {},
        }
        for name in ("add", "plus")
    ],
    "math": [
        {"problem": "1/2 + 1/2?", "answer": "1", "unique_id": "train/algebra/1", "level": 1},
        {"problem": "Half of 1?", "answer": "\\frac{1}{2}", "unique_id": "train/algebra/2"},
    ],
}


@pytest.fixture
def write_files(tmp_path):
    """A function that writes problems and completions, and returns their paths as arguments."""

    def write(problems, completions, compress=False):
        text = "".join(json.dumps(row) + "\n" for row in problems).encode()
        (tmp_path / "problems").write_bytes(gzip.compress(text) if compress else text)
        lines = [row if isinstance(row, str) else json.dumps(row) for row in completions]
        (tmp_path / "completions").write_text("".join(line + "\n" for line in lines))
        return [f"--{name}={tmp_path / name}" for name in ("problems", "completions")]

    return write


def read_verdicts(capsys):
    """Return the verdicts that were printed."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


MATH_COMPLETIONS = [
    {"id": "train/algebra/2", "completion": "It is $\\boxed{0.5}$."},
    {"id": "train/algebra/1", "completion": "\\boxed{2}"},
    {"id": "train/algebra/2", "completion": "one half"},
]


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_verdicts_are_in_the_order_of_the_completions(write_files, capsys, compress):
    arguments = write_files(PROBLEMS["math"], MATH_COMPLETIONS, compress)
    assert run(["grade", "--benchmark", "math", *arguments, "--workers", "2"]) == 0
    assert read_verdicts(capsys) == [
        {"id": "train/algebra/2", "reward": 1.0, "reason": "passed"},
        {"id": "train/algebra/1", "reward": 0.0, "reason": "wrong_answer"},
        {"id": "train/algebra/2", "reward": 0.0, "reason": "no_answer"},
    ]


def test_code_is_graded_with_and_without_a_fence(write_files, capsys):
    completions = [
        {"id": "Mbpp/add", "completion": "def add(a, b):\n    return b + a\n"},
        {"id": "Mbpp/plus", "completion": "So:\n```python\ndef plus(a, b):\n    return a\n```\n"},
        {"id": "Mbpp/plus", "completion": "```python\nplus = lambda a, b: a + b\n```"},
    ]
    arguments = write_files(PROBLEMS["mbpp_plus"], completions)
    assert run(["grade", "--benchmark", "mbpp_plus", *arguments]) == 0
    assert [v["reason"] for v in read_verdicts(capsys)] == ["passed", "wrong_answer", "passed"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "train/algebra/1"}', "completions:2: completion: Field required"),
        (
            '{"id": "train/algebra/9", "completion": ""}',
            "completions:2: id: 'train/algebra/9' is not the id",
        ),
        ('{"id": 1, "completion": ""}', "completions:2: id: "),
        ('{"id": "train/algebra/1", "completion": null}', "completions:2: completion: "),
        ("{", "completions:2: the line: Invalid JSON"),
        ('{"id": "train/algebra/1", "completion": "", "code": ""}', "completions:2: code: "),
    ],
)
def test_invalid_completion_is_named_and_nothing_is_graded(write_files, capsys, line, message):
    arguments = write_files(PROBLEMS["math"], [MATH_COMPLETIONS[0], line, MATH_COMPLETIONS[1]])
    assert run(["grade", "--benchmark", "math", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("surrogate", [rb"\ud800", b"\xed\xa0\x80"], ids=["escaped", "raw"])
def test_unpaired_surrogate_fails_only_its_own_completion(write_files, capsys, tmp_path, surrogate):
    """Python writes an unpaired surrogate as an escape, other programs as invalid UTF-8."""
    arguments = write_files(PROBLEMS["math"], [MATH_COMPLETIONS[0]])
    with open(tmp_path / "completions", "ab") as completions:
        completions.write(
            rb'{"id": "train/algebra/1", "completion": "\\boxed{1}' + surrogate + b'"}\n'
        )
    assert run(["grade", "--benchmark", "math", *arguments]) == 0
    assert [v["reason"] for v in read_verdicts(capsys)] == ["passed", "unparsable"]


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ([PROBLEMS["math"][0]] * 2, "problems:2: an earlier problem has the same id"),
        ([{"unique_id": "a", "answer": "1"}], "problems:1: problem: Field required"),
        ([], "problems: contains no problems"),
    ],
)
def test_invalid_problems_are_named(write_files, capsys, problems, message):
    assert run(["grade", "--benchmark", "math", *write_files(problems, [])]) == 2
    assert message in capsys.readouterr().err


def test_ungradable_problems_are_listed_and_the_rest_is_graded(write_files, capsys):
    add, plus = PROBLEMS["mbpp_plus"]
    broken = [
        plus | {"task_id": f"Mbpp/{name}", "canonical_solution": "def plus(a, b):\n    return c\n"}
        for name in ("one", "two", "unused")
    ]
    solution = {"completion": "def add(a, b):\n    return a + b\ndef plus(a, b):\n    return 3"}
    ids = ("Mbpp/two", "Mbpp/add", "Mbpp/one", "Mbpp/two", "Mbpp/add")
    arguments = write_files([add, *broken], [{"id": id} | solution for id in ids])
    assert run(["grade", "--benchmark", "mbpp_plus", *arguments]) == 2
    captured = capsys.readouterr()
    verdicts = [json.loads(line) for line in captured.out.splitlines()]
    assert [verdict["id"] for verdict in verdicts] == [*ids]
    refused = (None, "bad_problem")
    assert [(verdict["reward"], verdict["reason"]) for verdict in verdicts] == [
        refused, (1.0, "passed"), refused, refused, (1.0, "passed"),
    ]  # fmt: skip
    message = captured.err[captured.err.index("rapid grade: ") :].splitlines()
    assert (
        message[0]
        == "rapid grade: 2 of 4 problems are faulty, so their completions cannot be graded:"
    )
    assert [line.split(": ")[0] for line in message[1:]] == ["  Mbpp/two", "  Mbpp/one"]


def test_truncated_or_missing_file_is_named(write_files, capsys, tmp_path):
    arguments = write_files(PROBLEMS["math"], MATH_COMPLETIONS, compress=True)
    content = (tmp_path / "problems").read_bytes()
    (tmp_path / "problems").write_bytes(content[:-20])
    assert run(["grade", "--benchmark", "math", *arguments]) == 2
    assert "not readable as gzip" in capsys.readouterr().err
    (tmp_path / "problems").unlink()
    assert run(["grade", "--benchmark", "math", *arguments]) == 2
    assert "problems" in capsys.readouterr().err


def test_no_completions_give_no_verdicts(write_files, capsys):
    assert run(["grade", "--benchmark", "math", *write_files(PROBLEMS["math"], [])]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "completions: contains 0 completions" in captured.err


@pytest.mark.parametrize("option", ["--problems", "--completions"])
def test_a_folder_in_place_of_a_file_is_refused(write_files, capsys, tmp_path, option):
    arguments = [*write_files(PROBLEMS["math"], MATH_COMPLETIONS), f"{option}={tmp_path}"]
    assert run(["grade", "--benchmark", "math", *arguments]) == 2
    assert f"{option} {tmp_path}: must be a file, but is a folder" in capsys.readouterr().err


def test_a_problem_without_an_answer_is_faulty_and_no_completion_is_wrong(write_files, capsys):
    problems = [PROBLEMS["math"][0], PROBLEMS["math"][1] | {"answer": " "}]
    arguments = write_files(problems, MATH_COMPLETIONS)
    assert run(["grade", "--benchmark", "math", *arguments]) == 2
    captured = capsys.readouterr()
    verdicts = [json.loads(line) for line in captured.out.splitlines()]
    assert [(verdict["reward"], verdict["reason"]) for verdict in verdicts] == [
        (None, "bad_problem"),
        (0.0, "wrong_answer"),
        (None, "bad_problem"),
    ]
    assert "1 of 2 problems are faulty" in captured.err
    assert "  train/algebra/2: empty answer" in captured.err


@pytest.mark.parametrize("option", [["--workers", "0"], ["--timeout", "nan"], ["--workers", "x"]])
def test_invalid_numbers_are_refused(write_files, option):
    arguments = write_files(PROBLEMS["math"], MATH_COMPLETIONS)
    with pytest.raises(SystemExit) as exit:
        run(["grade", "--benchmark", "math", *arguments, *option])
    assert exit.value.code == 2


def test_flawed_statements_are_named_beside_the_verdicts(write_files, capsys, monkeypatch):
    statement = "theorem mathd_numbertheory_247 (n : Nat) (h : 3 * n % 2 = 11) : n % 11 = 8 := by"
    sound = {"name": "a", "formal_statement": "theorem a : 1 = 1 := by"}
    problems = [{"name": "mathd_numbertheory_247", "formal_statement": statement}, sound]
    arguments = write_files(problems, [{"id": row["name"], "completion": "x"} for row in problems])
    monkeypatch.setattr(BENCHMARKS["minif2f"], "explain_unavailable", lambda: None)
    monkeypatch.setattr(
        "rapid.stages.grade.grade",
        lambda *_, **__: GradingResult([build_verdict(WRONG_ANSWER)] * 2, {}),
    )
    assert run(["grade", "--benchmark", "minif2f", *arguments]) == 0
    error = capsys.readouterr().err
    assert "the statement of mathd_numbertheory_247 is flawed: vacuous: no remainder" in error
    assert "statement of a " not in error
