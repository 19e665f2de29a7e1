"""The search for tasks whose tests accept a constant or an unchanged argument."""

import pytest

from rapid.artifacts.files import write_jsonl
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from rapid.benchmarks.mbpp_plus import MbppPlus
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.mbpp_plus.weak_tests import find_weak_tasks, main

TIMEOUT = 10.0


def make_problem(body: str, inputs: list, id: str = "one") -> CodeProblem:
    source = f"def f(x, y=0):\n    return {body}\n"
    return CodeProblem(
        task_id=id,
        prompt="",
        entry_point="f",
        canonical_solution=source,
        base_input=inputs,
        plus_input=[],
    )


def test_constants_and_arguments_that_a_task_accepts_are_found():
    cases = [
        ("x > 0", [[1], [2]], ["True", "1"]),
        ("x > 0", [[1], [-2]], None),
        ("'a' * x", [[3], [3]], ["'aaa'"]),
        ("{x: {x}}", [[3]], ["{3: {3}}"]),
        ("x[:5]", [["abc"], ["abcde"]], ["argument 1"]),
        ("max(x, y)", [[1, 2], [2, 3]], ["argument 2"]),
        ("max(x, y)", [[1, 2], [3, 2]], None),
        ("10**5000 + x", [[1]], None),
        ("float('nan')", [[1]], None),
    ]
    problems = [make_problem(body, inputs, str(n)) for n, (body, inputs, _) in enumerate(cases)]
    weak_tasks = find_weak_tasks(problems, TIMEOUT, 2)
    assert [weak_tasks.get(task.id) for task in problems] == [
        accepted_outputs for *_, accepted_outputs in cases
    ]


def test_the_command_names_weak_tasks_and_fails_unless_all_are_recorded(
    tmp_path, capsys, monkeypatch
):
    path = tmp_path / "tasks.jsonl"
    write_jsonl(
        path, [make_problem("x > 0", [[1]], "weak"), make_problem("x > 0", [[1], [-1]], "strong")]
    )
    assert main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "weak: the tests accept that f returns True, 1 or argument 1",
        "the tests of 1 of 2 tasks accept a function that returns a constant or an argument",
    ]
    monkeypatch.setattr(MbppPlus, "weak_problems", {"weak": "True"})
    assert main([str(path)]) == 0


def test_no_generated_problem_accepts_a_constant_or_an_argument():
    exercises = draw_exercises(BENCHMARKS["mbpp_plus"], 0, {"a": 20})["a"]
    assert not find_weak_tasks([exercise.problem for exercise in exercises], TIMEOUT, 2)


def test_a_failing_reference_solution_is_reported(tmp_path, capsys):
    path = tmp_path / "tasks.jsonl"
    write_jsonl(path, [make_problem("1 / 0", [[1]], "broken")])
    with pytest.raises(SystemExit) as exit_error:
        main([str(path)])
    assert exit_error.value.code == 2
    assert "broken: the reference solution failed" in capsys.readouterr().err


def test_a_missing_file_is_reported_with_its_source(tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_error:
        main([str(tmp_path / "MbppPlus.jsonl.gz")])
    assert exit_error.value.code == 2
    assert "Download it from EvalPlus: https://" in capsys.readouterr().err
