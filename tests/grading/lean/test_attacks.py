"""Attacks on the Lean checker: no falsehood is rewarded, whichever checks of the author are off."""

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanChecker
from tests.grading.lean import attacks
from tests.grading.lean.scripts import change_script

# The changes of author.js for each kind of author.
AUTHORS = {
    "unchanged": [],
    "without forbidden words": [
        (r"const (CODE|OPTIONS) = new Set\(\[[^]]*\]\)", r"const \1 = new Set()", 2)
    ],
    "that exports every proof": [(r"(?m)^    if \(.*throw new Refusal.*\n", "", 6)],
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in [*AUTHORS][1:]]


@pytest.fixture(scope="module", params=["unchanged", *SLOW])
def lean(request, tmp_path_factory):
    """A checker with a changed author and the unchanged judge."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if changes := AUTHORS[request.param]:
            change_script("author.js", changes, tmp_path_factory.mktemp("author"), monkeypatch)
        with LeanChecker(timeout=30) as checker:
            checker.wait_ready()
            yield checker


@pytest.mark.parametrize("attack", attacks.PROOFS)
def test_no_falsehood_is_rewarded(lean, attack):
    assert lean.check("p1", *attacks.PROOFS[attack]).reward == 0.0


def test_a_proof_that_rewrites_the_memory_of_lean_is_not_rewarded(lean):
    assert lean.check("p1", attacks.NUMBERS, attacks.REWRITE).reward == 0.0
    assert lean.check("p1", "theorem p1 : True := by\n  ", "trivial").reward == 1.0


def test_a_true_statement_about_nul_is_accepted(lean):
    statement = attacks.TEXTS.replace(" = ", " ≠ ")
    assert lean.check("p1", statement, "decide").reason == verdicts.PASSED
