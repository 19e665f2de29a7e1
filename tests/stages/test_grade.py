"""`rapid grade`: completions in, verdicts out, and nothing that looks whole and is not."""

import gzip
import json

import pytest

from rapid.cli import run

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
def files(tmp_path):
    """Writes problems and completions; their paths, as arguments."""

    def write(problems, completions, compress=False):
        text = "".join(json.dumps(row) + "\n" for row in problems).encode()
        (tmp_path / "problems").write_bytes(gzip.compress(text) if compress else text)
        lines = [row if isinstance(row, str) else json.dumps(row) for row in completions]
        (tmp_path / "completions").write_text("".join(line + "\n" for line in lines))
        return [f"--{name}={tmp_path / name}" for name in ("problems", "completions")]

    return write


def verdicts(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


MATH = [
    {"id": "train/algebra/2", "completion": "It is $\\boxed{0.5}$."},
    {"id": "train/algebra/1", "completion": "\\boxed{2}"},
    {"id": "train/algebra/2", "completion": "one half"},
]


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_verdicts_are_in_the_order_of_the_completions(files, capsys, compress):
    arguments = files(PROBLEMS["math"], MATH, compress)
    assert run(["grade", "--benchmark", "math", *arguments, "--workers", "2"]) == 0
    assert verdicts(capsys) == [
        {"id": "train/algebra/2", "reward": 1.0, "reason": "passed"},
        {"id": "train/algebra/1", "reward": 0.0, "reason": "wrong_answer"},
        {"id": "train/algebra/2", "reward": 0.0, "reason": "no_answer"},
    ]


def test_code_is_graded_bare_and_in_a_fence(files, capsys):
    completions = [
        {"id": "Mbpp/add", "completion": "def add(a, b):\n    return b + a\n"},
        {"id": "Mbpp/plus", "completion": "So:\n```python\ndef plus(a, b):\n    return a\n```\n"},
        {"id": "Mbpp/plus", "completion": "```python\nplus = lambda a, b: a + b\n```"},
    ]
    arguments = files(PROBLEMS["mbpp_plus"], completions)
    assert run(["grade", "--benchmark", "mbpp_plus", *arguments]) == 0
    assert [v["reason"] for v in verdicts(capsys)] == ["passed", "wrong_answer", "passed"]


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
def test_a_bad_completion_is_named_and_nothing_is_graded(files, capsys, line, message):
    arguments = files(PROBLEMS["math"], [MATH[0], line, MATH[1]])
    assert run(["grade", "--benchmark", "math", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("half", [rb"\ud800", b"\xed\xa0\x80"], ids=["escaped", "raw"])
def test_half_a_character_ends_its_own_completion_only(files, capsys, tmp_path, half):
    """Python writes it as an escape, other programs as bytes that no UTF-8 has."""
    arguments = files(PROBLEMS["math"], [MATH[0]])
    with open(tmp_path / "completions", "ab") as completions:
        completions.write(rb'{"id": "train/algebra/1", "completion": "\\boxed{1}' + half + b'"}\n')
    assert run(["grade", "--benchmark", "math", *arguments]) == 0
    assert [v["reason"] for v in verdicts(capsys)] == ["passed", "unparsable"]


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ([PROBLEMS["math"][0]] * 2, "problems:2: a second problem with the id"),
        ([{"unique_id": "a", "answer": "1"}], "problems:1: problem: Field required"),
        ([], "problems: contains no problems"),
    ],
)
def test_bad_problems_are_named(files, capsys, problems, message):
    assert run(["grade", "--benchmark", "math", *files(problems, [])]) == 2
    assert message in capsys.readouterr().err


def test_problems_that_cannot_be_graded_are_named_together_and_cost_no_verdict(files, capsys):
    add, plus = PROBLEMS["mbpp_plus"]
    broken = [
        plus | {"task_id": f"Mbpp/{name}", "canonical_solution": "def plus(a, b):\n    return c\n"}
        for name in ("one", "two", "unused")
    ]
    solution = {"completion": "def add(a, b):\n    return a + b\ndef plus(a, b):\n    return 3"}
    ids = ("Mbpp/two", "Mbpp/add", "Mbpp/one", "Mbpp/two", "Mbpp/add")
    arguments = files([add, *broken], [{"id": id} | solution for id in ids])
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
        message[0] == "rapid grade: 2 of 4 problems cannot be graded, whatever the completion is:"
    )
    assert [line.split(": ")[0] for line in message[1:]] == ["  Mbpp/two", "  Mbpp/one"]


def test_a_file_that_is_cut_or_missing_is_named(files, capsys, tmp_path):
    arguments = files(PROBLEMS["math"], MATH, compress=True)
    content = (tmp_path / "problems").read_bytes()
    (tmp_path / "problems").write_bytes(content[:-20])
    assert run(["grade", "--benchmark", "math", *arguments]) == 2
    assert "not readable as gzip" in capsys.readouterr().err
    (tmp_path / "problems").unlink()
    assert run(["grade", "--benchmark", "math", *arguments]) == 2
    assert "problems" in capsys.readouterr().err


def test_no_completions_are_no_verdicts(files, capsys):
    assert run(["grade", "--benchmark", "math", *files(PROBLEMS["math"], [])]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("option", [["--workers", "0"], ["--timeout", "nan"], ["--workers", "x"]])
def test_numbers_that_are_none_are_refused(files, option):
    with pytest.raises(SystemExit) as exit:
        run(["grade", "--benchmark", "math", *files(PROBLEMS["math"], MATH), *option])
    assert exit.value.code == 2
