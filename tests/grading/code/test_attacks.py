"""Completions that attack the grader get no reward, and later completions are graded as before."""

import json
import os
import time
from pathlib import Path

import pytest

from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.grading import verdicts
from rapid.grading.code import sandbox as sandbox_module
from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.sandbox import UNSAFE_LAYER, Sandbox, encode_job
from tests.grading.code import intrusions
from tests.grading.code.attacks import ATTACKS, RIGHT, forge_line

PATIENCE = 30.0  # seconds for an honest completion, even on a busy machine
SPARE = 2.0  # seconds of CPU time in which the grader has to read and compare an output


def assert_grader_still_works(grader: CodeGrader, problem: CodeProblem) -> None:
    """Check that the grader still rewards a right completion."""
    timeout, grader.timeout = grader.timeout, PATIENCE
    try:
        assert grader.grade(problem, RIGHT).reason == verdicts.PASSED
    finally:
        grader.timeout = timeout


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_gets_one_of_its_allowed_reasons(
    attacked_grader, isolation, double, attack, monkeypatch
):
    program, allowed = ATTACKS[attack]
    if allowed == {verdicts.TIMEOUT}:  # so a short timeout is enough
        monkeypatch.setattr(attacked_grader, "timeout", 0.2)
    start = time.process_time()
    verdict = attacked_grader.grade(double, program)
    assert time.process_time() - start < attacked_grader.timeout + SPARE
    if not isolation.is_complete:  # other isolation stops the attack, with another reason
        allowed = allowed | (verdicts.REASONS.keys() - {verdicts.PASSED})
    assert verdict.reason in allowed
    assert_grader_still_works(attacked_grader, double)


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    installed = map(str, Path(sandbox_module._PREFIX, "lib").glob("python*/*-packages/**/*.py"))
    importable = tuple(sandbox_module._find_importable_packages())
    package = next((path for path in installed if not path.startswith(importable)), "")
    with intrusions.set_up_targets(
        tmp_path_factory.mktemp("targets"), package
    ) as intrusion_targets:
        yield intrusion_targets


@pytest.mark.parametrize("intrusion", intrusions.INTRUSIONS)
def test_an_intrusion_reaches_nothing(attacked_grader, double, targets, intrusion):
    assert (
        attacked_grader.grade(double, intrusions.build_program(intrusion, targets)).reason
        != verdicts.PASSED
    )
    assert Path(targets.path).read_bytes() == intrusions.SECRET
    assert_grader_still_works(attacked_grader, double)


@pytest.mark.skipif(
    os.geteuid() == 0, reason="the grader runs as root, so completions run as another user"
)
def test_intrusions_succeed_without_isolation(double, targets):
    """Without isolation, a completion that runs as the grader's user reaches all these targets."""
    sandbox = Sandbox(256, UNSAFE_LAYER, guarded=False, filtered=False, unsafe=True)
    with CodeGrader(1.0, sandbox) as grader:
        for intrusion in intrusions.WITHOUT_PRIVILEGES:
            verdict = grader.grade(double, intrusions.build_program(intrusion, targets))
            assert verdict.reason == verdicts.PASSED, intrusion


FLOATS = "f", "def f(): return [i / 2 for i in range(20_000)]"
UNORDERED = "Diff", "def Diff(): return list(range(20_000))"  # compared as sets

# Outputs of the greatest size allowed, each slow to read or to compare for a reason of its own.
COSTLY_OUTPUTS = {
    "different numbers of one hash": (  # sent as a list: the runner's `set` is replaced
        UNORDERED,
        "vars(__import__('builtins')).update(set=list) or [k * (2**61 - 1) for k in range(20_000)]",
    ),
    "a shape to stretch": (FLOATS, "[[i / 2] for i in range(20_000)]"),
    "strings to pad": (FLOATS, "['x' * 10**6] + [''] * 19_999"),
    "numbers to widen": (FLOATS, "[1 << 10**6] + [0.5] * 19_999"),
    "too many values": (FLOATS, "[[]] * 99_000"),
    "deep values": (FLOATS, "[[[[[[[[[]]]]]]]]] * 4_000"),
}


@pytest.mark.parametrize("attack", COSTLY_OUTPUTS)
def test_a_costly_output_takes_the_grader_little_time(grader, double, attack):
    (name, solution), value = COSTLY_OUTPUTS[attack]
    changes = {"entry_point": name, "canonical_solution": solution, "base_input": [[]]}
    problem = double.model_copy(update=changes | {"plus_input": []})
    grader.prepare(problem)
    start = time.process_time()
    verdict = grader.grade(problem, f"def {name}(): return {value}")
    assert time.process_time() - start < SPARE
    assert verdict.reason in (verdicts.WRONG_ANSWER, verdicts.CRASHED, verdicts.TIMEOUT)


def test_costly_forged_lines_take_the_grader_little_time(grader, double):
    lines = [
        b'{"output": 0.' + b"1" * 60_000 + b"}",
        b'{"output": [' + b"0.1e-300," * 6_000 + b"0]}",
        b'{"output": "' + b"\\ud800" * 9_000 + b'"}',
        b'{"output": {"bytes": "' + b"00" * 30_000 + b'"}}',
        b'{"output": 2, "more": [' + b"[]," * 9_000 + b"[]]}",
    ]
    for line in lines:
        start = time.process_time()
        assert grader.grade(double, forge_line(line + b"\n")).reason != verdicts.PASSED
        assert time.process_time() - start < SPARE


def test_the_child_process_holds_no_reference_and_no_expected_output(grader, double):
    """Neither its frames nor the objects of the garbage collector contain them."""
    solution = "def f(x): return 'sec' + 'ret' * 3 + str(x)"
    secret = double.model_copy(update={"canonical_solution": solution})
    search = (
        "import gc, sys\n"
        "def f(x):\n"
        "    gc.unfreeze()\n"
        "    frames = [sys._getframe(above).f_locals for above in range(1, 6)]\n"
        "    everything = str([gc.get_objects(), frames])\n"
        "    words = 'terterterces'[::-1], \"* 'ter'\"[::-1]\n"
        "    return f'{sum(word in everything for word in words)} found in {len(everything)}'\n"
    )
    answers = []
    grader.grade(secret, secret.canonical_solution)
    job = encode_job(search, "f", grader.get_reference(secret).inputs_json)
    grader._sandbox.run(job, 20.0, lambda line: answers.append(json.loads(line)), 10**6)
    match_count, searched_length = answers[0]["output"].split(" found in ")
    assert match_count == "0"
    assert int(searched_length) > 10**5


def test_a_memory_bomb_gets_the_reason_memory(grader, double, monkeypatch):
    monkeypatch.setattr(grader, "timeout", PATIENCE)  # even on a busy machine
    bomb = "def f(x):\n    a = []\n    while True: a.append(b'x' * 10**7)"
    assert grader.grade(double, bomb).reason == verdicts.MEMORY
