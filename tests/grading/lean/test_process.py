"""The process of the WebAssembly Lean: its memory, its image and its permissions."""

import pytest

from rapid.grading import limits, verdicts
from rapid.grading.lean import LeanChecker, ensure_lean, launch
from tests.grading.lean.scripts import run_node
from tests.subprocesses import python, wait_for

TRUE_PROOF = ("p1", "theorem p1 : (1 : Nat) = 1 := by\n  ", "rfl")
FALSE_PROOF = ("p1", "theorem p1 : (1 : Nat) = 2 := by\n  ", "rfl")
OMEGA_PROOF = ("p1", "theorem p1 (a b : Nat) (h : a < b) : a + 1 ≤ b := by\n  ", "omega")
UNCHECKED_PROOF = (
    *FALSE_PROOF[:2],
    "set_option debug.skipKernelTC true in decide +kernel",
)  # with the kernel's check switched off


def author_pid(checker: LeanChecker) -> int:
    return checker._processes["author"].pid


def test_a_process_that_grew_too_large_is_replaced_after_its_answer(lean, monkeypatch):
    lean.check(*TRUE_PROOF)
    earlier_pid = author_pid(lean)
    monkeypatch.setattr(limits, "LEAN_REPLACE_MB", 1)
    assert lean.check(*TRUE_PROOF).reason == verdicts.PASSED
    assert author_pid(lean) != earlier_pid


def test_the_process_has_no_environment_variables_of_the_caller(lean, monkeypatch):
    monkeypatch.setenv("RAPID_TEST_SECRET", "1")
    lean.stop()
    lean.wait_ready()
    with open(f"/proc/{author_pid(lean)}/environ", "rb") as stream:
        names = {entry.split(b"=")[0] for entry in stream.read().split(b"\0") if entry}
    assert names <= {b"PATH", b"PWD", b"OLDPWD", b"SHLVL", b"_"}


def test_a_header_is_applied_to_statements_and_proofs(image):
    with LeanChecker(timeout=20, header="import Init\nopen Nat\n") as checker:
        statement = "theorem p1 (a b : Nat) (h : a < b) : succ a ≤ b := by\n  "
        assert checker.check("p1", statement, "exact succ_le_of_lt h").reason == verdicts.PASSED


@pytest.mark.slow
def test_a_process_started_from_the_image_gives_the_same_verdicts(image, tmp_path):
    reasons = []
    for _ in range(2):
        with LeanChecker(timeout=20) as checker:
            reasons.append(
                [
                    checker.check(*proof).reason
                    for proof in (TRUE_PROOF, FALSE_PROOF, OMEGA_PROOF, UNCHECKED_PROOF)
                ]
            )
        assert list(tmp_path.iterdir()) == [image]
    assert reasons[0] == reasons[1]
    assert reasons[0][2:] == [verdicts.PASSED, verdicts.FORBIDDEN]


def list_writable(plan: launch.Launch) -> list[str]:
    option = "--allow-fs-write="
    return [word.removeprefix(option) for word in plan.program if word.startswith(option)]


def test_only_the_judge_may_write_and_only_its_own_image(image):
    """A judge that starts from an image trusts its content."""
    author, judge = (launch.plan_wasm(ensure_lean(), "", role) for role in ("author", "judge"))
    assert list_writable(author) == []
    assert list_writable(judge) == [str(image), str(judge.scratch)]


def test_copying_bytes_fails_if_lean_has_no_memory_left():
    """`malloc` then returns 0, which is a valid address in WebAssembly."""
    script = """
        const { Runtime } = require(process.argv[1]);
        const use = () => console.log('used');
        const lean = { x: { malloc: () => 0, free() {} }, bytes: Buffer.alloc(16) };
        try { Runtime.prototype.withCopy.call(lean, Buffer.from('ab'), use); }
        catch (error) { console.log(error.message); }
    """
    assert run_node(script, launch.SCRIPTS / "runtime.js") == "Lean has no memory left\n"


def test_an_incomplete_image_is_deleted(image, tmp_path):
    with LeanChecker(timeout=20) as checker:
        checker._processes["author"]._scratch.write_bytes(b"half of it")
    assert list(tmp_path.iterdir()) == []


def test_an_incomplete_image_is_deleted_if_its_owner_is_killed(tmp_path):
    script = f"""
import os
from pathlib import Path
from rapid.grading.lean import LeanChecker, launch
launch.get_image_path = lambda *_: Path({str(tmp_path / "image")!r})
checker = LeanChecker(timeout=20).__enter__()
checker._processes["author"]._scratch.write_bytes(b"half of it")
os.kill(os.getpid(), 9)
"""
    python("-c", script, status=-9)
    wait_for(lambda: not any(tmp_path.iterdir()))
