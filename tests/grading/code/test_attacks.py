"""Completions that attack the grader. None gets a reward, and the next one is graded as ever."""

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
from tests.grading.code import raids
from tests.grading.code.attacks import ATTACKS, RIGHT, forge

PATIENCE = 30.0  # seconds, on a machine as busy as can be
SPARE = 2.0  # seconds of a processor that reading and comparing an output may cost the grader


def assert_in_order(grader: CodeGrader, problem: CodeProblem) -> None:
    """The grader is as good as new, whatever was graded before."""
    hurried, grader.timeout = grader.timeout, PATIENCE
    try:
        assert grader.grade(problem, RIGHT).reason == verdicts.PASSED
    finally:
        grader.timeout = hurried


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_fails(attacked, walls, double, attack, monkeypatch):
    program, allowed = ATTACKS[attack]
    if allowed == {verdicts.TIMEOUT}:  # sooner or later
        monkeypatch.setattr(attacked, "timeout", 0.2)
    start = time.process_time()
    verdict = attacked.grade(double, program)
    assert time.process_time() - start < attacked.timeout + SPARE
    if not walls.whole:  # another wall stops it, and may give another reason
        allowed = allowed | (verdicts.REASONS.keys() - {verdicts.PASSED})
    assert verdict.reason in allowed
    assert_in_order(attacked, double)


@pytest.fixture(scope="module")
def hunted(tmp_path_factory):
    installed = map(str, Path(sandbox_module._PREFIX, "lib").glob("python*/*-packages/**/*.py"))
    shared = tuple(sandbox_module._shared_packages())
    package = next((path for path in installed if not path.startswith(shared)), "")
    with raids.prey(tmp_path_factory.mktemp("prey"), package) as prey:
        yield prey


@pytest.mark.parametrize("raid", raids.RAIDS)
def test_a_raid_takes_nothing(attacked, double, hunted, raid):
    assert attacked.grade(double, raids.program(raid, hunted)).reason != verdicts.PASSED
    assert Path(hunted.path).read_bytes() == raids.SECRET
    assert_in_order(attacked, double)


@pytest.mark.skipif(os.geteuid() == 0, reason="of root, completions run as another user")
def test_the_raids_are_real(double, hunted):
    """Without walls, a completion of the grader's own user takes all this, and more."""
    grader = CodeGrader(timeout=1.0)
    grader._sandbox = Sandbox(256, UNSAFE_LAYER, guarded=False, filtered=False, unsafe=True)
    with grader:
        for raid in raids.REAL:
            verdict = grader.grade(double, raids.program(raid, hunted))
            assert verdict.reason == verdicts.PASSED, raid


FLOATS = "f", "def f(): return [i / 2 for i in range(20_000)]"
UNORDERED = "Diff", "def Diff(): return list(range(20_000))"  # compared as sets

# Outputs as large as they may be, each the slowest or largest to read or compare in its own way.
COSTLY = {
    "different numbers of one hash": (  # as a list: `set` is the runner's no longer
        UNORDERED,
        "vars(__import__('builtins')).update(set=list) or [k * (2**61 - 1) for k in range(20_000)]",
    ),
    "a shape to stretch": (FLOATS, "[[i / 2] for i in range(20_000)]"),
    "strings to pad": (FLOATS, "['x' * 10**6] + [''] * 19_999"),
    "numbers to widen": (FLOATS, "[1 << 10**6] + [0.5] * 19_999"),
    "too many values": (FLOATS, "[[]] * 99_000"),
    "deep values": (FLOATS, "[[[[[[[[[]]]]]]]]] * 4_000"),
}


@pytest.mark.parametrize("attack", COSTLY)
def test_a_costly_output_costs_the_grader_little(grader, double, attack):
    (name, solution), value = COSTLY[attack]
    changes = {"entry_point": name, "canonical_solution": solution, "base_input": [[]]}
    problem = double.model_copy(update=changes | {"plus_input": []})
    grader.prepare(problem)
    start = time.process_time()
    verdict = grader.grade(problem, f"def {name}(): return {value}")
    assert time.process_time() - start < SPARE
    assert verdict.reason in (verdicts.WRONG_ANSWER, verdicts.CRASHED, verdicts.TIMEOUT)


def test_costly_forged_lines_cost_the_grader_little(grader, double):
    lines = [
        b'{"output": 0.' + b"1" * 60_000 + b"}",
        b'{"output": [' + b"0.1e-300," * 6_000 + b"0]}",
        b'{"output": "' + b"\\ud800" * 9_000 + b'"}',
        b'{"output": {"bytes": "' + b"00" * 30_000 + b'"}}',
        b'{"output": 2, "more": [' + b"[]," * 9_000 + b"[]]}",
    ]
    for line in lines:
        start = time.process_time()
        assert grader.grade(double, forge(line + b"\n")).reason != verdicts.PASSED
        assert time.process_time() - start < SPARE


def test_neither_reference_nor_outputs_are_in_the_child(grader, double):
    """Not in its frames, nor among all objects that the collector knows."""
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
    seen = []
    grader.grade(secret, secret.canonical_solution)
    job = encode_job(search, "f", grader._references.find(secret, grader._sandbox).calls)
    grader._sandbox.run(job, 20.0, lambda line: seen.append(json.loads(line)), 10**6)
    count, searched = seen[0]["output"].split(" found in ")
    assert count == "0"
    assert int(searched) > 10**5


def test_a_memory_bomb_is_named(grader, double, monkeypatch):
    monkeypatch.setattr(grader, "timeout", PATIENCE)  # however busy the machine is
    bomb = "def f(x):\n    a = []\n    while True: a.append(b'x' * 10**7)"
    assert grader.grade(double, bomb).reason == verdicts.MEMORY
