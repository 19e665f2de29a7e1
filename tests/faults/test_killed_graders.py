"""Killing processes of a grader at random moments changes no verdict."""

import random
import threading
from contextlib import suppress

import psutil
import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.minif2f import made as minif2f
from rapid.grading import verdicts
from tests.grading.conftest import double  # noqa: F401
from tests.grading.math.conftest import HALF
from tests.subprocesses import wait_for

KILLS, KILL_INTERVAL = 20, 6  # a process is killed during one of KILL_INTERVAL completions
COMPLETIONS = KILLS * KILL_INTERVAL
LONGEST_DELAYS = {"mbpp_plus": 0.02, "math": 0.005, "minif2f": 0.2}  # seconds until a kill


def make_completions(name: str, doubled) -> list[tuple]:
    """Return completions with their problems. At least every second completion passes."""
    numbers, rng = range(COMPLETIONS), random.Random(3)
    match name:
        case "mbpp_plus":
            texts = doubled.canonical_solution, "def f(x): return x"
            return [(doubled, f"{texts[n % 2]}\n# {n}") for n in numbers]
        case "math":
            return [
                (HALF, f"\\boxed{{\\frac{{{n + 2}}}{{{2 * (n + 2) + n % 2}}}}}") for n in numbers
            ]
    exercises = [minif2f.draw(rng, f"p{n}") for n in numbers]
    proofs = [[exercise.correct, *exercise.mistakes] for exercise in exercises]
    return [
        (exercise.problem, texts[n % 2 % len(texts)])
        for n, exercise, texts in zip(numbers, exercises, proofs, strict=True)
    ]


def list_grader_processes(name: str) -> set[psutil.Process]:
    """Return the descendants of this process; for the grader of proofs, only those that run Lean."""
    processes = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie, too
            lean = "checker.js" in " ".join(child.cmdline())
            processes |= {child} if lean or name != "minif2f" else set()
    return processes


def kill_one(victims: set[psutil.Process], rng: random.Random, killed: list) -> None:
    for victim in rng.sample([*victims], len(victims)):
        with suppress(psutil.NoSuchProcess):  # it has ended by itself
            victim.kill()
            return killed.append(victim)


def grade_rows(name: str, rows: list[tuple], killing: bool) -> list[str]:
    """Return the reasons of verdicts, while processes of the grader are killed or not."""
    before, rng, reasons, killed = list_grader_processes(name), random.Random(0), [], []
    with BENCHMARKS[name].build_grader(20.0) as grader:
        grader.prepare(rows[0][0])
        for number, row in enumerate(rows):
            kill = None
            if killing and number % KILL_INTERVAL == 0:
                arguments = list_grader_processes(name) - before, rng, killed
                kill = threading.Timer(rng.uniform(0, LONGEST_DELAYS[name]), kill_one, arguments)
                kill.start()
            reasons.append(grader.grade(*row).reason)
            if kill:
                kill.join()
        assert not grader.reasons[verdicts.INFRASTRUCTURE]
    assert len(killed) == (KILLS if killing else 0)
    wait_for(lambda: not list_grader_processes(name) - before)
    return reasons


@pytest.mark.slow
@pytest.mark.fault("killed jobs: grader process", times=KILLS)
@pytest.mark.parametrize("name", BENCHMARKS)
def test_kills_of_grader_processes_change_no_verdict(name, double):  # noqa: F811
    """Only one process is killed during a completion: a second death would make it infrastructure."""
    rows = make_completions(name, double)
    undisturbed = grade_rows(name, rows, False)
    assert {*undisturbed[::2]} == {verdicts.PASSED} and {*undisturbed[1::2]} != {verdicts.PASSED}
    assert grade_rows(name, rows, True) == undisturbed
