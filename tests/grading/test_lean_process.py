"""The Lean process: late, killed, too large, left behind."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rapid.grading import reasons
from rapid.grading.lean import LeanChecker, LeanUnavailable, launch
from rapid.grading.lean import checker as checker_module

TRUE = ("p1", "theorem p1 : (1 : Nat) = 1 := by\n  ", "rfl")
FALSE = ("p1", "theorem p1 : (1 : Nat) = 2 := by\n  ", "rfl")
OMEGA = ("p1", "theorem p1 (a b : Nat) (h : a < b) : a + 1 ≤ b := by\n  ", "omega")
KERNEL = (*FALSE[:2], "set_option debug.skipKernelTC true in decide +kernel")  # turned off
ENDLESS = (
    "p1",
    "theorem p1 : ∀ n : Nat, n < 300 → (List.range n).length = n := by\n  ",
    "set_option maxHeartbeats 0 in\n  set_option maxRecDepth 1000000 in\n  decide",
)  # not quite, but minutes


@pytest.fixture(scope="module")
def lean():
    with LeanChecker(timeout=2) as checker:
        checker.wait_ready()
        yield checker


def pid(checker: LeanChecker) -> int:
    return checker._process._process.pid


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_endless_proof_costs_its_timeout_and_the_next_is_judged(lean):
    before, started = pid(lean), time.monotonic()
    assert lean.check(*ENDLESS).reason == reasons.TIMEOUT
    assert 2 <= time.monotonic() - started < 4
    assert not is_alive(before)
    assert lean.check(*TRUE).reason == reasons.PASSED
    assert lean.check(*FALSE).reward == 0.0


def test_a_killed_process_is_replaced(lean):
    lean.check(*TRUE)
    os.kill(pid(lean), signal.SIGKILL)
    assert lean.check(*TRUE).reason == reasons.CRASHED
    assert lean.check(*TRUE).reason == reasons.PASSED


def test_a_process_that_grew_too_large_is_replaced_after_its_answer(lean, monkeypatch):
    lean.check(*TRUE)
    before = pid(lean)
    monkeypatch.setattr(checker_module, "MAX_MEGABYTES", 1)
    assert lean.check(*TRUE).reason == reasons.PASSED
    assert pid(lean) != before and not is_alive(before)


def test_threads_share_a_checker(lean):
    verdicts = {}

    def judge(number):
        verdicts[number] = lean.check(*(TRUE if number % 2 else FALSE)).reward

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == {number: float(number % 2) for number in range(8)}


def test_a_forged_answer_is_not_read(lean, monkeypatch):
    lean.check(*TRUE)
    forged = b'{"id":1,"ok":true,"why":"passed","messages":[]}\nnoise\n[1]\n"x"\n'
    monkeypatch.setattr(lean._process, "_unread", forged)
    assert lean.check(*FALSE).reward == 0.0


def test_the_process_sees_no_environment_variable_of_the_caller(lean, monkeypatch):
    monkeypatch.setenv("RAPID_TEST_SECRET", "1")
    lean.stop()
    lean.wait_ready()
    with open(f"/proc/{pid(lean)}/environ", "rb") as stream:
        names = {entry.split(b"=")[0] for entry in stream.read().split(b"\0") if entry}
    assert names <= {b"PATH", b"PWD", b"OLDPWD", b"SHLVL", b"_"}


def test_an_exception_in_the_caller_ends_the_process():
    with pytest.raises(KeyError), LeanChecker(timeout=3) as checker:
        process = pid(checker)
        raise KeyError
    assert not is_alive(process)


def test_a_header_is_in_force(monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "image_path", lambda *_: tmp_path / "image")
    with LeanChecker(timeout=30, header="import Init\nopen Nat\n") as checker:
        statement = "theorem p1 (a b : Nat) (h : a < b) : succ a ≤ b := by\n  "
        assert checker.check("p1", statement, "exact succ_le_of_lt h").reason == reasons.PASSED


def test_a_process_from_the_image_judges_like_one_that_imports(monkeypatch, tmp_path):
    image = tmp_path / "image"
    monkeypatch.setattr(launch, "image_path", lambda *_: image)
    verdicts = []
    for _ in range(2):
        with LeanChecker(timeout=30) as checker:
            verdicts.append([checker.check(*text).reason for text in (TRUE, FALSE, OMEGA, KERNEL)])
        assert image.exists()
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][2:] == [reasons.PASSED, reasons.FORBIDDEN]


def test_a_damaged_image_is_made_again(monkeypatch, tmp_path):
    image = tmp_path / "image"
    image.write_bytes(b"{}\nhalf of it")
    monkeypatch.setattr(launch, "image_path", lambda *_: image)
    with LeanChecker(timeout=30) as checker:
        assert checker.check(*TRUE).reason == reasons.PASSED


def test_a_header_that_needs_mathlib_says_so():
    with LeanChecker(timeout=3, header="import Mathlib\n") as checker:
        if checker.backend.kind == "native":
            pytest.skip("a native Lean may have Mathlib")
        with pytest.raises(LeanUnavailable, match="Mathlib"):
            checker.wait_ready()


SCRIPT = """
import sys, time
from rapid.grading.lean import LeanChecker
checker = LeanChecker(timeout=60).start()
checker.wait_ready()
print(checker._process._process.pid, flush=True)
{then}
"""


def wait_until_gone(process: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not is_alive(process)


def test_the_process_ends_with_an_interpreter_that_forgot_it():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(then="")], capture_output=True, text=True, check=True
    )
    assert wait_until_gone(int(done.stdout), 3)


def test_the_process_ends_with_an_interpreter_that_was_killed_during_a_proof():
    script = SCRIPT.format(then=f"checker.check(*{ENDLESS!r})")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        process = int(owner.stdout.readline())
        time.sleep(0.5)
        owner.kill()
    assert wait_until_gone(process, 5)
