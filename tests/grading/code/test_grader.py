"""Programs are graded by the values that they return, with EvalPlus's rules."""

import pytest

from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.grading import verdicts
from rapid.grading.code import sandbox
from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.reference import run_reference
from rapid.grading.grader import BadProblem


def make_problem(solution: str, *inputs: list, **fields) -> CodeProblem:
    """Return a problem about `f`. Its id contains its text, so different problems have no id in
    common.
    """
    defaults = {"prompt": "", "entry_point": "f", "plus_input": []}
    return CodeProblem(
        task_id=f"{solution}{inputs}",
        canonical_solution=solution,
        base_input=list(inputs),
        **defaults | fields,
    )


def test_plus_inputs_are_graded(grader, double):
    assert grader.grade(double, "def f(x): return abs(2 * x)").reason == verdicts.WRONG_ANSWER


@pytest.mark.parametrize("wrong", ["0", "[0] * 15_000"])  # the second is not even read
def test_the_first_wrong_output_ends_the_run(grader, double, wrong):
    program = f"def f(x):\n    while x == 2: pass\n    return {wrong}"
    assert grader.grade(double, program).reason == verdicts.WRONG_ANSWER


def test_random_numbers_and_hashes_repeat(layer):
    """They also repeat in another runner, so that a verdict can be reproduced."""
    program = "import random\ndef f(): return random.random(), str({'a', 'b', 'c', 'd'})"
    outputs = []
    for _ in range(2):
        with CodeGrader(1.0, sandbox.Sandbox(layer=layer)) as new_grader:
            outputs.append(run_reference(make_problem(program, []), new_grader._sandbox).expected)
    assert outputs[0] == outputs[1]


@pytest.mark.usefixtures("ignored_sigchld")
def test_a_caller_may_ignore_the_ends_of_its_children(layer, double):
    with CodeGrader(5.0, sandbox.Sandbox(256, layer)) as new_grader:
        assert new_grader.grade(double, double.canonical_solution).reason == verdicts.PASSED


def test_a_grader_without_a_sandbox_needs_the_unsafe_flag(monkeypatch):
    monkeypatch.setattr(sandbox, "LAYERS", ())
    with pytest.raises(sandbox.SandboxError), CodeGrader(timeout=1.0):
        pass
    with CodeGrader(1.0, sandbox.Sandbox(unsafe=True)) as unsafe_grader:
        assert "NOT ISOLATED" in unsafe_grader.describe_isolation()
    assert unsafe_grader._sandbox._runner is None


def test_the_standard_library_can_be_imported(grader, excludes_unsafe_layer):
    zips = make_problem("import zipfile\ndef f(): return zipfile.ZIP_STORED", [])
    assert grader.grade(zips, zips.canonical_solution).reason == verdicts.PASSED


@pytest.mark.parametrize(
    ("expected", "returned", "reason"),
    [
        ("(1, 2)", "[1, 2]", verdicts.WRONG_ANSWER),
        ("{1, 2}", "[1, 2]", verdicts.WRONG_ANSWER),
        ("'1'", "1", verdicts.WRONG_ANSWER),
        ("None", "False", verdicts.WRONG_ANSWER),
        ("1.0", "1.1", verdicts.WRONG_ANSWER),
        ("10 ** 20", "10 ** 20 + 1", verdicts.WRONG_ANSWER),
        ("[0.3, 1.0]", "[0.1 + 0.2, 1.0]", verdicts.PASSED),
        ("{'a': 1}", "__import__('collections').Counter('a')", verdicts.PASSED),
        ("{frozenset({1})}", "{frozenset({1})}", verdicts.PASSED),
        ("9 ** 9_999", "9 ** 9_999", verdicts.PASSED),
        ("'\\udcff'", "'\\udcff'", verdicts.PASSED),
        ("2", "2.0", verdicts.PASSED),
        ("[0.5]", "[__import__('fractions').Fraction(1, 2)]", verdicts.PASSED),
        ("0.5", "__import__('decimal').Decimal('0.5')", verdicts.PASSED),
        ("0.1", "__import__('decimal').Decimal('0.1')", verdicts.WRONG_ANSWER),
        ("10**17 + 1", "__import__('fractions').Fraction(10**17 + 1)", verdicts.PASSED),
        ("0.5", "__import__('fractions').Fraction(10**400, 3)", verdicts.WRONG_ANSWER),
        ("0.5", "__import__('decimal').Decimal('sNaN')", verdicts.WRONG_ANSWER),
        ("[1]", "filter(None, [0, 1])", verdicts.WRONG_ANSWER),
    ],
)
def test_values_are_compared_as_evalplus_does(grader, expected, returned, reason):
    function = make_problem(f"def f(): return {expected}", [])
    assert grader.grade(function, f"def f(): return {returned}").reason == reason


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("filter(None, [0, 2, 1, 2])", verdicts.PASSED),
        ("{1: 'a', 2: 'b'}.keys()", verdicts.PASSED),
        ("filter(None, [0, 1])", verdicts.WRONG_ANSWER),
        ("[[1], [2]]", verdicts.CRASHED),
        ("12", verdicts.CRASHED),
    ],
)
def test_set_tasks_of_evalplus_accept_any_iterable(grader, returned, reason):
    function = make_problem("def Diff(): return [1, 2]", [], entry_point="Diff")
    assert grader.grade(function, f"def Diff(): return {returned}").reason == reason


def test_a_problem_without_inputs_is_an_error(grader):
    with pytest.raises(BadProblem, match="no inputs"):
        grader.grade(make_problem("def f(): return 1"), "def f(): return 1")
