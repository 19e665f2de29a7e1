"""The process of the WebAssembly Lean: its memory, its image, what it can reach."""

import subprocess

import pytest

from rapid.grading import limits, verdicts
from rapid.grading.lean import LeanChecker, ensure_lean, launch
from rapid.grading.lean.install import find_node
from tests.subprocesses import python, wait_for

TRUE = ("p1", "theorem p1 : (1 : Nat) = 1 := by\n  ", "rfl")
FALSE = ("p1", "theorem p1 : (1 : Nat) = 2 := by\n  ", "rfl")
OMEGA = ("p1", "theorem p1 (a b : Nat) (h : a < b) : a + 1 ≤ b := by\n  ", "omega")
KERNEL = (*FALSE[:2], "set_option debug.skipKernelTC true in decide +kernel")  # turned off


def pid(checker: LeanChecker) -> int:
    return checker._processes["author"].pid


def test_a_process_that_grew_too_large_is_replaced_after_its_answer(lean, monkeypatch):
    lean.check(*TRUE)
    before = pid(lean)
    monkeypatch.setattr(limits, "LEAN_WORN_MB", 1)
    assert lean.check(*TRUE).reason == verdicts.PASSED
    assert pid(lean) != before


def test_the_process_sees_no_environment_variable_of_the_caller(lean, monkeypatch):
    monkeypatch.setenv("RAPID_TEST_SECRET", "1")
    lean.stop()
    lean.wait_ready()
    with open(f"/proc/{pid(lean)}/environ", "rb") as stream:
        names = {entry.split(b"=")[0] for entry in stream.read().split(b"\0") if entry}
    assert names <= {b"PATH", b"PWD", b"OLDPWD", b"SHLVL", b"_"}


def test_a_header_is_in_force(monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "image_path", lambda *_: tmp_path / "image")
    with LeanChecker(timeout=20, header="import Init\nopen Nat\n") as checker:
        statement = "theorem p1 (a b : Nat) (h : a < b) : succ a ≤ b := by\n  "
        assert checker.check("p1", statement, "exact succ_le_of_lt h").reason == verdicts.PASSED


@pytest.mark.slow
def test_a_process_from_the_image_judges_like_one_that_imports(monkeypatch, tmp_path):
    image = tmp_path / "image"
    monkeypatch.setattr(launch, "image_path", lambda *_: image)
    reasons = []
    for _ in range(2):
        with LeanChecker(timeout=20) as checker:
            reasons.append([checker.check(*text).reason for text in (TRUE, FALSE, OMEGA, KERNEL)])
        assert list(tmp_path.iterdir()) == [image]
    assert reasons[0] == reasons[1]
    assert reasons[0][2:] == [verdicts.PASSED, verdicts.FORBIDDEN]


def test_an_author_may_write_no_image(monkeypatch, tmp_path):
    """A judge starts from the image: what is in it is believed."""
    monkeypatch.setattr(launch, "image_path", lambda *_: tmp_path / "image")
    writes = {
        role: f"--allow-fs-write={tmp_path}" in launch.plan_wasm(ensure_lean(), "", role).program
        for role in ("author", "judge")
    }
    assert writes == {"author": False, "judge": True}


def test_lean_without_memory_left_is_given_no_bytes():
    """Address 0, which `malloc` then returns, is an address as any other in WebAssembly."""
    script = """
        const { Runtime } = require(process.argv[1]);
        const use = () => console.log('used');
        const lean = { x: { malloc: () => 0, free() {} }, bytes: Buffer.alloc(16) };
        try { Runtime.prototype.withCopy.call(lean, Buffer.from('ab'), use); }
        catch (error) { console.log(error.message); }
    """
    command = [find_node(), "-e", script, str(launch.SCRIPTS / "runtime.js")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "Lean has no memory left\n"


def test_half_an_image_does_not_stay(monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "image_path", lambda *_: tmp_path / "image")
    with LeanChecker(timeout=20) as checker:
        checker._processes["author"]._scratch.write_bytes(b"half of it")
    assert list(tmp_path.iterdir()) == []


def test_half_an_image_does_not_outlive_a_killed_owner(tmp_path):
    script = f"""
import os
from pathlib import Path
from rapid.grading.lean import LeanChecker, launch
launch.image_path = lambda *_: Path({str(tmp_path / "image")!r})
checker = LeanChecker(timeout=20).start()
checker._processes["author"]._scratch.write_bytes(b"half of it")
os.kill(os.getpid(), 9)
"""
    python("-c", script, status=-9)
    wait_for(lambda: not any(tmp_path.iterdir()))
