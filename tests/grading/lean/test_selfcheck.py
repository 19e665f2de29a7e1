"""What `rapid lean-setup` says of a Lean that judges rightly, wrongly or not at all."""

import io
from pathlib import Path

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanUnavailable, selfcheck
from rapid.grading.lean.install import Backend

BACKEND = Backend("wasm", "4.99.0", Path("/lean"))


@pytest.fixture
def lean(monkeypatch):
    """A Lean in the checker's place: what it has, what it lets pass, and how it was started."""

    class Lean:
        mathlib = ""  # what is wrong with it
        passes = (selfcheck.TRUE,)

        def __init__(self, timeout, header="", backend=None, unsafe=False):
            assert backend == BACKEND
            self.started.append((header, unsafe))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def wait_ready(self):
            if self.started[-1][0] and self.mathlib:
                raise LeanUnavailable(self.mathlib)
            return float(len(self.started))

        def check(self, name, *proof):
            reason = verdicts.PASSED if proof in self.passes else verdicts.FORBIDDEN
            return verdicts.verdict(reason)

    Lean.started = []
    monkeypatch.setattr(selfcheck, "LeanChecker", Lean)
    monkeypatch.setattr(
        selfcheck, "ensure_lean", lambda compares_all: BACKEND if compares_all else None
    )
    return Lean


def setup() -> tuple[int, str]:
    stream = io.StringIO()
    return selfcheck.set_up_lean(stream), stream.getvalue()


def test_a_lean_is_started_twice_and_with_mathlib(lean):
    status, printed = setup()
    assert status == 0 and lean.started == [("", False)] * 2 + [("import Mathlib\n", False)]
    assert "1.0 s, then 2.0 s\nMathlib     found\nself-check  passed\n" in printed
    for why, says in (
        ("unknown module prefix 'Mathlib'", "not found. To grade Mathlib problems"),
        ("too slow", "cannot be used: too slow"),
    ):
        lean.mathlib = why
        status, printed = setup()
        assert status == 0 and f"Mathlib     {says}" in printed


@pytest.mark.parametrize("passes", [(), (selfcheck.TRUE, selfcheck.FALSE), (selfcheck.FALSE,)])
def test_a_lean_that_judges_wrongly_fails(lean, passes):
    lean.passes = passes
    status, printed = setup()
    assert status == 1 and "self-check  FAILED" in printed


def test_without_a_lean_it_says_why(monkeypatch):
    def none(compares_all):
        raise LeanUnavailable("no npm")

    monkeypatch.setattr(selfcheck, "ensure_lean", none)
    assert setup() == (1, "Lean is not available: no npm\n")


def test_mathlib_may_be_tried_without_walls(lean):
    selfcheck.start_mathlib(BACKEND, unsafe=True)
    assert lean.started == [("import Mathlib\n", True)]
