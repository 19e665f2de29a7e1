"""A Lean that is killed at random moments: every verdict is as it would have been."""

import random
import threading
from contextlib import suppress

import psutil
import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.minif2f import made as minif2f
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.grading import verdicts

PROOFS, KILLS, SEED = 500, 50, 3


def problems() -> list[tuple[LeanProblem, str, bool]]:
    """Problems with a completion each, and whether it is a proof."""
    rng = random.Random(SEED)
    drawn = [minif2f.draw(rng, f"p{number}") for number in range(PROOFS)]
    return [
        (one.problem, one.correct, True)
        if number % 2 or not one.mistakes
        else (one.problem, one.mistakes[0], False)
        for number, one in enumerate(drawn)
    ]


def leans() -> list[psutil.Process]:
    """The Lean processes of this one."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # a zombie, too
            found += [child] if "checker.js" in " ".join(child.cmdline()) else []
    return found


def end(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):  # replaced meanwhile
        process.kill()


@pytest.mark.slow
def test_every_verdict_is_as_without_kills():
    rows, dice = problems(), random.Random(SEED)
    with BENCHMARKS["minif2f"].grader(20.0) as grader:
        undisturbed = [grader.grade(problem, text).reason for problem, text, _ in rows]
    assert [reason == verdicts.PASSED for reason in undisturbed] == [right for *_, right in rows]

    killed = 0
    at = set(dice.sample(range(PROOFS), KILLS))
    with BENCHMARKS["minif2f"].grader(20.0) as grader:
        found = []
        for number, (problem, text, _) in enumerate(rows):
            victims = leans()
            if number in at and victims:
                threading.Timer(dice.uniform(0, 0.2), end, [dice.choice(victims)]).start()
                killed += 1
            found.append(grader.grade(problem, text).reason)
        assert grader.reasons[verdicts.INFRASTRUCTURE] == 0
    assert killed == KILLS
    assert found == undisturbed
    assert leans() == []
