"""Attacks on the Lean checker: no falsehood is proved, whichever of the author's checks are off."""

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanChecker
from tests.grading.lean import attacks
from tests.grading.lean.scripts import change_script

# What an author refuses with, and with what each kind of author differs from the one in use.
AUTHORS = {
    "as it is": [],
    "without words": [(r"const (CODE|OPTIONS) = new Set\(\[[^]]*\]\)", r"const \1 = new Set()", 2)],
    "that exports all": [(r"(?m)^    if \(.*throw new Refusal.*\n", "", 6)],
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in [*AUTHORS][1:]]


@pytest.fixture(scope="module", params=["as it is", *SLOW])
def lean(request, tmp_path_factory):
    """A checker whose author is another one; the judge is always the same."""
    with pytest.MonkeyPatch.context() as patch:
        if changes := AUTHORS[request.param]:
            change_script("author.js", changes, tmp_path_factory.mktemp("author"), patch)
        with LeanChecker(timeout=30) as checker:
            checker.wait_ready()
            yield checker


@pytest.mark.parametrize("label", attacks.PROOFS)
def test_no_falsehood_is_rewarded(lean, label):
    assert lean.check("p1", *attacks.PROOFS[label]).reward == 0.0


def test_what_rewrites_leans_memory_proves_nothing(lean):
    assert lean.check("p1", attacks.NUMBERS, attacks.REWRITE).reward == 0.0
    assert lean.check("p1", "theorem p1 : True := by\n  ", "trivial").reward == 1.0


def test_a_truth_about_nul_is_accepted(lean):
    statement = attacks.TEXTS.replace(" = ", " ≠ ")
    assert lean.check("p1", statement, "decide").reason == verdicts.PASSED
