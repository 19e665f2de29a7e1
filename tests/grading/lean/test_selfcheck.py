"""`rapid lean-setup` with a Lean whose verdicts are right or wrong, and without a Lean."""

from pathlib import Path

import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanUnavailable, selfcheck
from rapid.grading.lean.install import Backend

BACKEND = Backend("wasm", "4.99.0", Path("/lean"))


@pytest.fixture
def lean(monkeypatch):
    """A fake checker: its problem with Mathlib, the proofs that it passes, and how it was started."""

    class Lean:
        mathlib = ""  # the error of importing it
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
            return verdicts.build_verdict(reason)

    Lean.started = []
    monkeypatch.setattr(selfcheck, "LeanChecker", Lean)
    monkeypatch.setattr(
        selfcheck, "ensure_lean", lambda verify_all: BACKEND if verify_all else None
    )
    return Lean


@pytest.fixture
def run_setup(capsys):
    """Return a function that runs the command and returns its exit status and what it printed."""
    return lambda: (selfcheck.set_up_lean(), capsys.readouterr().out)


def test_setup_starts_lean_twice_and_then_with_mathlib(lean, run_setup):
    status, printed = run_setup()
    assert status == 0 and lean.started == [("", False)] * 2 + [("import Mathlib\n", False)]
    start_up = "start-up    1.0 s the first time, 2.0 s the second time\n"
    assert f"{start_up}Mathlib     found\nself-check  passed\n" in printed
    for reason, message in (
        ("unknown module prefix 'Mathlib'", "not found. To grade Mathlib problems"),
        ("too slow", "cannot be used: too slow"),
    ):
        lean.mathlib = reason
        status, printed = run_setup()
        assert status == 0 and f"Mathlib     {message}" in printed


REJECTED = "rejected the proof of a true statement (forbidden)"
ACCEPTED = "accepted a proof of a false statement"


@pytest.mark.parametrize(
    ("passes", "fault"),
    [
        ((), REJECTED),
        ((selfcheck.TRUE, selfcheck.FALSE), ACCEPTED),
        ((selfcheck.FALSE,), f"{REJECTED} and {ACCEPTED}"),
    ],
)
def test_a_lean_with_wrong_verdicts_fails_the_self_check(lean, run_setup, passes, fault):
    lean.passes = passes
    status, printed = run_setup()
    assert status == 1
    assert f"self-check  FAILED: Lean {fault}. Run this command again" in printed


def test_an_unavailable_lean_is_reported_with_the_reason(run_setup, monkeypatch):
    def raise_unavailable(verify_all):
        raise LeanUnavailable("no npm")

    monkeypatch.setattr(selfcheck, "ensure_lean", raise_unavailable)
    assert run_setup() == (1, "Lean is not available: no npm\n")


def test_mathlib_can_be_started_without_a_sandbox(lean):
    selfcheck.start_lean(BACKEND, selfcheck.MATHLIB, unsafe=True)
    assert lean.started == [("import Mathlib\n", True)]
