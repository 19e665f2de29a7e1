"""The process of the WebAssembly Lean: its memory, its image, what it can reach."""

import re
import shutil
import subprocess
import sys
import time

import pytest

from rapid.grading import reasons
from rapid.grading.lean import LeanChecker, launch
from rapid.grading.lean import checker as checker_module

TRUE = ("p1", "theorem p1 : (1 : Nat) = 1 := by\n  ", "rfl")
FALSE = ("p1", "theorem p1 : (1 : Nat) = 2 := by\n  ", "rfl")
OMEGA = ("p1", "theorem p1 (a b : Nat) (h : a < b) : a + 1 ≤ b := by\n  ", "omega")
KERNEL = (*FALSE[:2], "set_option debug.skipKernelTC true in decide +kernel")  # turned off


@pytest.fixture(scope="module")
def lean():
    with LeanChecker(timeout=20) as checker:
        checker.wait_ready()
        yield checker


def pid(checker: LeanChecker) -> int:
    return checker._processes["author"].pid


def test_a_process_that_grew_too_large_is_replaced_after_its_answer(lean, monkeypatch):
    lean.check(*TRUE)
    before = pid(lean)
    monkeypatch.setattr(checker_module, "MAX_MEGABYTES", 1)
    assert lean.check(*TRUE).reason == reasons.PASSED
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
        assert checker.check("p1", statement, "exact succ_le_of_lt h").reason == reasons.PASSED


@pytest.mark.slow
def test_a_process_from_the_image_judges_like_one_that_imports(monkeypatch, tmp_path):
    image = tmp_path / "image"
    monkeypatch.setattr(launch, "image_path", lambda *_: image)
    verdicts = []
    for _ in range(2):
        with LeanChecker(timeout=20) as checker:
            verdicts.append([checker.check(*text).reason for text in (TRUE, FALSE, OMEGA, KERNEL)])
        assert list(tmp_path.iterdir()) == [image]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][2:] == [reasons.PASSED, reasons.FORBIDDEN]


@pytest.mark.slow
def test_a_damaged_image_is_made_again(monkeypatch, tmp_path):
    image = tmp_path / "image"
    image.write_bytes(b"{}\nhalf of it")
    monkeypatch.setattr(launch, "image_path", lambda *_: image)
    with LeanChecker(timeout=20) as checker:
        assert checker.check(*TRUE).reason == reasons.PASSED


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
    assert subprocess.run([sys.executable, "-c", script]).returncode == -9
    deadline = time.monotonic() + 3
    while any(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


# It makes Lean run code that finds the statement's 1000004 in Lean's memory and writes 1000003 there.
# `fake` is an array of bytes whose header lies in another's data, and which has no end.
REWRITE = """first
  | (set_option compiler.extract_closed false in
     have h : (unsafe (
      let bytes := (ByteArray.mk #[
        1, 0, 0, 0, 0, 0, 1, 248, 255, 255, 255, 127, 255, 255, 255, 127,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).uset 0 1 lcProof
      let here : USize := ptrAddrUnsafe bytes
      let header : USize := here + 16
      let bytes := bytes.uset 16 header.toUInt8 lcProof
      let bytes := bytes.uset 17 (header >>> 8).toUInt8 lcProof
      let bytes := bytes.uset 18 (header >>> 16).toUInt8 lcProof
      let bytes := bytes.uset 19 (header >>> 24).toUInt8 lcProof
      let array : Array ByteArray := #[ByteArray.empty]
      let index : USize := (here + 32 - (ptrAddrUnsafe array + 16)) / 4
      let fake := if bytes.size > 0 then array.uget index lcProof else ByteArray.empty
      let bytes := bytes.uset (if fake.size > 0 then 0 else 1) 1 lcProof
      let fake := if bytes.size > 0 then (List.range 600000).foldl (fun (fake : ByteArray) k =>
        let spot : USize := 4 * USize.ofNat k - 1200000
        if fake.uget spot lcProof == 137 && fake.uget (spot + 1) lcProof == 132
          && fake.uget (spot + 2) lcProof == 30 && fake.uget (spot + 3) lcProof == 0
        then fake.uset spot 135 lcProof else fake) fake else fake
      (fake.uset (0 - 16) 100 lcProof).size > 0) : Bool) = true := by native_decide
     fail)
  | exact (rfl : (1000003 : Nat) = 1000003)"""
REWRITTEN = ("p1", "theorem p1 : (1000003 : Nat) = 1000004 := by\n  ", REWRITE)


@pytest.fixture(scope="module")
def open_to_code(tmp_path_factory):
    """A checker whose author refuses no word: the judge alone stands."""
    folder = tmp_path_factory.mktemp("open")
    for script in launch.HERE.glob("*.js"):
        shutil.copy(script, folder)
    author = folder / "author.js"
    opened, count = re.subn(
        r"const (CODE|OPTIONS) = new Set\(\[[^]]*\]\)", r"const \1 = new Set()", author.read_text()
    )
    assert count == 2
    author.write_text(opened)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "HERE", folder)
        patch.setattr(launch, "image_path", lambda *_: folder / "image")
        with LeanChecker(timeout=60) as checker:
            checker.wait_ready()
            yield checker


def test_a_proof_that_rewrites_leans_memory_does_not_reach_the_judge(open_to_code):
    assert open_to_code.check(*REWRITTEN).reason == reasons.FORBIDDEN  # `the statement changed`
    assert open_to_code.check(*TRUE).reason == reasons.PASSED
    assert open_to_code.check(*FALSE).reason == reasons.WRONG_ANSWER
